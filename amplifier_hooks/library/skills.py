r"""Skills: short files of know-how, injected when a prompt is about them.

```python
from pathlib import Path
from amplifier_hooks import HookRegistry
from amplifier_hooks.library import Skills

registry = HookRegistry()
Path("pdf.md").write_text("---\nname: pdf-forms\nkeywords: [fill in]\n---\nUse qpdf.")
Skills.from_config({"folders": ["."]}).register(registry)
print((await registry.emit("prompt:submit", {"prompt": "Please fill in these PDF forms"})).context_injection)
```

```output
Skill pdf-forms
Use qpdf.
```

A skill is `NAME/SKILL.md` or `NAME.md` in a folder: front matter with `name`, `description` and `keywords`, then its
text.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen
from pydantic import Field

from amplifier_hooks.events import PROMPT_SUBMIT, SESSION_START
from amplifier_hooks.library.parts.ready_made import HookSettings, Once, PerSession, Point, ReadyMade
from amplifier_hooks.result import HookResult
from amplifier_hooks.text.strict_parsing import yaml_library

if TYPE_CHECKING:
    from collections.abc import Iterator


PRIORITY: Final = 150

WORDS: Final = re.compile(r"[^\W_]+")
NAME_COUNTS: Final = 3
"""Number of keywords that the name of a skill is worth."""

MOST_FILES: Final = 5_000
LARGEST: Final = 262_144
"""Largest size of a skill's file, in bytes."""
LONGEST_FRONT: Final = 8_192
"""Longest front matter of a skill, in characters."""
LONGEST_LINE: Final = 200
MOST_NAMED: Final = 3
"""Files that a message names; of the others it gives the number."""

Stamp = tuple[int, int, int]
"""Identity of one state of a file: its modification time, its size, its inode."""


class SkillsSettings(HookSettings):
    """The folders of skills, and the amount of text that is shown."""

    folders: tuple[str, ...] = Field(
        default=("~/.amplifier-hooks/skills",),
        description="where skills are; a project's own are texts of that project: name its folder only if you trust it",
    )
    most: int = Field(default=3, ge=1, le=100, description="skills that one prompt brings up at most")
    characters: int = Field(
        default=4_000,
        ge=100,
        le=100_000,
        description="how long their texts are together; of others there is their path",
    )


@frozen
class Skill:
    """One skill, as its file was when it was read."""

    name: str
    description: str
    phrases: tuple[tuple[tuple[str, ...], int], ...]
    """Phrases that match the skill, each with its weight."""
    text: str
    path: Path
    stamp: Stamp


@define
class _Index:
    """All skills, and the skills that each first word leads to."""

    files: dict[Path, Skill | tuple[Stamp, str]] = field(factory=dict)
    """Each file as a skill, or as its state and the problem with it."""
    first: dict[str, list[tuple[tuple[str, ...], int, Skill]]] = field(factory=dict)

    def match(self, prompt: str) -> list[Skill]:
        """Return the skills that a prompt is about, best match first. One pass over its words."""
        words = WORDS.findall(prompt.lower())
        first = self.first
        if first.keys().isdisjoint(words):
            return []
        counts: dict[tuple[tuple[str, ...], Path], tuple[int, Skill]] = {}
        for place, word in enumerate(words):
            for phrase, worth, skill in first.get(word, ()):
                if len(phrase) == 1 or tuple(words[place : place + len(phrase)]) == phrase:
                    counts[phrase, skill.path] = (worth, skill)
        scores: dict[Path, int] = {}
        found: dict[Path, Skill] = {}
        for worth, skill in counts.values():
            scores[skill.path] = scores.get(skill.path, 0) + worth
            found[skill.path] = skill
        return sorted(found.values(), key=lambda skill: (-scores[skill.path], skill.name, skill.path))

    @property
    def broken_files(self) -> list[tuple[Path, Stamp, str]]:
        """Files that are no skills, and the reasons."""
        return [(path, *one) for path, one in self.files.items() if not isinstance(one, Skill)]


class Skills(ReadyMade[SkillsSettings]):
    """At a prompt, injects the skills it is about: matched by their names and keywords, within a length.

    Files are read once; at the start of a session changed files are read again. A skill is shown once in a session, and
    again when its file has changed since. If the text of a skill does not fit, its path is named instead. A file with
    bad front matter is left out, and the user is told so once; the others are used.
    """

    name = "skills"
    Settings = SkillsSettings

    def __init__(self, settings: SkillsSettings | None = None) -> None:
        super().__init__(settings)
        self._index: _Index | None = None
        self._reading = asyncio.Lock()
        self._stamps: PerSession[dict[Path, Stamp]] = PerSession(dict)
        self._once = Once()

    def points(self) -> tuple[Point, ...]:
        """Return a hook at every prompt, and an observer of a session's start."""
        return (
            Point(event=SESSION_START, call=self.on_session_start, intent="observe", priority=PRIORITY),
            Point(event=PROMPT_SUBMIT, call=self.on_prompt, intent="on", priority=PRIORITY),
        )

    async def on_session_start(self, event: str, data: Mapping[str, Any], outcome: object) -> None:
        """Read the changed files."""
        await self._read(again=True)

    async def on_prompt(self, event: str, data: Mapping[str, Any]) -> HookResult | None:
        """Inject the skills that the prompt is about and that this session has not seen."""
        index = self._index or await self._read()
        message = self._complaint(data, index)
        prompt = data.get("prompt")
        matched = index.match(prompt) if isinstance(prompt, str) else []
        text = self._skill_texts(data, [now for skill in matched[: self.settings.most] if (now := _current(skill))])
        if text:
            return HookResult.inject(text, user_message=message, user_message_level="warning")
        return HookResult.proceed(user_message=message, user_message_level="warning") if message else None

    def _skill_texts(self, data: Mapping[str, Any], skills: list[Skill]) -> str:
        """Return the skills' texts, as far as there is room for them."""
        if not skills:
            return ""
        shown, room, texts = self._stamps.of(data), self.settings.characters, []
        for skill in skills:
            if shown.get(skill.path) == skill.stamp:
                continue
            head = f"Skill {skill.name}" + (f": {skill.description}" if skill.description else "")
            text = f"{head}\n{skill.text}"
            if len(text) > room:
                text = f"{head}\nIt is not shown here for its length; read it in {skill.path}."
            room -= len(text)
            if room < 0:
                break
            shown[skill.path] = skill.stamp
            texts.append(text)
        return "\n\n".join(texts)

    def _complaint(self, data: Mapping[str, Any], index: _Index) -> str | None:
        """Return a message for the user about files that are no skills, once for each state of a file."""
        new = [(path, why) for path, stamp, why in index.broken_files if self._once.is_first(data, path, stamp)]
        if not new:
            return None
        named = "; ".join(f"{path}: {why}" for path, why in new[:MOST_NAMED])
        more = f"; and {len(new) - MOST_NAMED} more" if len(new) > MOST_NAMED else ""
        return f"These skills are left out, the others are used. {named}{more}"

    async def _read(self, *, again: bool = False) -> _Index:
        """Return the index; with `again`, read the changed files first."""
        async with self._reading:
            if self._index is None or again:
                self._index = await asyncio.to_thread(_build_index, self.settings.folders, self._index or _Index())
            return self._index


def _build_index(folders: tuple[str, ...], before: _Index) -> _Index:
    """Return the index of these folders. Unchanged files are taken from the index before."""
    index = _Index()
    for path, stamp in _files([Path(folder).expanduser() for folder in folders]):
        known = before.files.get(path)
        same = known is not None and (known.stamp if isinstance(known, Skill) else known[0]) == stamp
        one = index.files[path] = known if same and known is not None else _skill(path, stamp)
        if isinstance(one, Skill):
            for phrase, worth in one.phrases:
                index.first.setdefault(phrase[0], []).append((phrase, worth, one))
    return index


def _files(folders: list[Path]) -> Iterator[tuple[Path, Stamp]]:
    """Yield the files of skills, in order. A folder that cannot be read has none."""
    count = 0
    for folder in folders:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if count == MOST_FILES:
                return
            path = Path(entry.path) / "SKILL.md" if entry.is_dir() else Path(entry.path)
            if path.suffix == ".md" and (stamp := _stamp(path)):
                count += 1
                yield path, stamp


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if path.is_file() else None


def _current(skill: Skill) -> Skill | None:
    """Return the skill as its file is now, or None if the file is no skill any more."""
    stamp = _stamp(skill.path)
    if stamp == skill.stamp:
        return skill
    now = _skill(skill.path, stamp) if stamp else None
    return now if isinstance(now, Skill) else None


def _skill(path: Path, stamp: Stamp) -> Skill | tuple[Stamp, str]:
    """Return the skill in a file, or the file's state and the problem with it."""
    if stamp[1] > LARGEST:
        return stamp, f"it is larger than {LARGEST:,} bytes"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        return stamp, f"it cannot be read ({type(problem).__name__})"
    try:
        front, body = _split_front(text)
        return _make_skill(path, stamp, front, body)
    except ValueError as problem:
        return stamp, str(problem)


def _split_front(text: str) -> tuple[Mapping[str, Any], str]:
    """Return front matter and text. Raise `ValueError`."""
    yaml = yaml_library()
    lines = text.split("\n")
    if lines[0].strip() != "---":
        raise ValueError("it has no front matter; begin it with a line ---")
    end = next((number for number, line in enumerate(lines) if number and line.strip() == "---"), None)
    if end is None or sum(map(len, lines[:end])) > LONGEST_FRONT:
        raise ValueError("its front matter has no end; close it with a line ---")
    try:
        front = yaml.safe_load("\n".join(lines[1:end]))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" in line {mark.line + 2}" if mark is not None else ""
        raise ValueError(f"its front matter is no YAML{where}") from None
    front = {} if front is None else front
    if not isinstance(front, Mapping):
        raise ValueError("its front matter is no mapping; write name: …")  # noqa: TRY004  # it is the file that is wrong
    return front, "\n".join(lines[end + 1 :]).strip()


def _make_skill(path: Path, stamp: Stamp, front: Mapping[str, Any], body: str) -> Skill:
    name = front.get("name") or (path.parent.name if path.name == "SKILL.md" else path.stem)
    description, keywords = front.get("description", ""), front.get("keywords") or []
    if isinstance(keywords, str):
        keywords = keywords.split(",")
    if not isinstance(name, str) or not isinstance(description, str):
        raise ValueError("its name and its description have to be text")  # noqa: TRY004  # as above
    if not isinstance(keywords, list) or not all(isinstance(keyword, str) for keyword in keywords):
        raise ValueError("its keywords have to be a list of texts")  # as above
    worth: dict[tuple[str, ...], int] = {}
    for phrase, counts in [(keyword, 1) for keyword in keywords] + [(name, NAME_COUNTS)]:
        words = tuple(WORDS.findall(phrase.lower()))
        if words:
            worth[words] = counts
    if not worth:
        raise ValueError("neither its name nor its keywords have a word that a prompt could have")
    line = " ".join(description.split())[:LONGEST_LINE]
    return Skill(" ".join(name.split())[:LONGEST_LINE], line, tuple(worth.items()), body, path, stamp)
