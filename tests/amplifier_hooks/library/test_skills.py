import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_hooks import HookRegistry, Outcome, SessionCoordinator
from amplifier_hooks.library import Skills, skills
from amplifier_hooks.testing import RecordingContext

pytestmark = pytest.mark.rule("LIB-4")


def write(path: Path, text: str, *, front: str = "") -> Path:
    """Write a skill's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{front}\n---\n{text}\n", encoding="utf-8")
    return path


def learned(folder: Path, **settings: Any) -> HookRegistry:
    """Return a registry with the skills of a folder."""
    registry = HookRegistry()
    Skills.from_config({"folders": [str(folder)], **settings}).register(registry)
    return registry


async def submit(registry: HookRegistry, prompt: object, session: str = "s") -> Outcome:
    """Submit a prompt."""
    return await registry.emit("prompt:submit", {"session_id": session, "prompt": prompt})


async def test_found_by_name_and_keyword(tmp_path: Path) -> None:
    """Skills are found by their names and keywords, in any case; the best match comes first."""
    write(tmp_path / "git.md", "Rebase.", front="name: git-history\nkeywords: [rebase, clean up]")
    write(tmp_path / "pdf" / "SKILL.md", "Use qpdf.", front="description: All about PDF\nkeywords: merge, rebase")
    registry = learned(tmp_path)
    assert (await submit(registry, "Please REBASE the Git history")).context_injection == (
        "Skill git-history\nRebase.\n\nSkill pdf: All about PDF\nUse qpdf."
    )
    for prompt in ("rebased", "history of git", "clean it up", "", None, ["rebase"]):
        assert not (await submit(registry, prompt, "t")).injections
    assert (await submit(registry, "clean\nup!", "t")).context_injection == "Skill git-history\nRebase."


async def test_once_a_session_unless_it_changed(tmp_path: Path) -> None:
    """A skill is shown once a session, and again after its file changed; a missing or broken one is not shown."""
    path = write(tmp_path / "git.md", "One.")
    registry = learned(tmp_path)
    assert (await submit(registry, "git")).context_injection == "Skill git\nOne."
    assert not (await submit(registry, "git")).injections
    assert (await submit(registry, "git", "t")).injections
    write(path, "Two, and longer.")
    assert (await submit(registry, "git")).context_injection == "Skill git\nTwo, and longer."
    assert not (await submit(registry, "git")).injections
    path.write_text("no skill", encoding="utf-8")
    assert not (await submit(registry, "git", "u")).injections
    path.unlink()
    assert not (await submit(registry, "git", "u")).injections


async def test_new_files_are_found_when_a_session_starts(tmp_path: Path) -> None:
    """Files are read once; the start of a session reads those that are new or changed, and no others."""
    first, second = write(tmp_path / "one.md", "1"), tmp_path / "two.md"
    registry = learned(tmp_path)
    assert not (await submit(registry, "two")).injections
    write(second, "2")
    assert not (await submit(registry, "two")).injections
    written = first.stat().st_mtime_ns
    write(first, "7")
    os.utime(first, ns=(written, written))  # only reading the file could show this change
    await registry.emit("session:start", {"session_id": "t"})
    assert (await submit(registry, "one, two")).context_injection == "Skill one\n1\n\nSkill two\n2"


async def test_within_its_length(tmp_path: Path) -> None:
    """A skill that is too long is named with its path, and the number of skills is limited."""
    for number in range(5):
        write(tmp_path / f"skill{number}.md", "x" * (500 if number == 1 else 40), front="keywords: [go]")
    registry = learned(tmp_path, most=3, characters=300)
    text = (await submit(registry, "go")).context_injection or ""
    assert [line for line in text.splitlines() if line.startswith("Skill ")] == [
        "Skill skill0",
        "Skill skill1",
        "Skill skill2",
    ]
    assert f"It is not shown here for its length; read it in {tmp_path / 'skill1.md'}." in text
    assert len(text) <= 300 + 4
    tight = (await submit(learned(tmp_path, most=5, characters=100), "go")).context_injection or ""
    assert len(tight) <= 100


BROKEN = {
    "none.md": "no front matter",
    "open.md": "---\nname: open\n",
    "yaml.md": "---\nname: [\n---\n",
    "list.md": "---\n- a\n---\n",
    "name.md": "---\nname: 3\n---\n",
    "keys.md": "---\nkeywords: {a: 1}\n---\n",
    "dash.md": "---\nname: '---'\n---\n",
    "huge.md": "---\n" + "x" * 300_000,
    "deep.md": "---\n" + "[" * 600 + "\n---\n",
}


async def test_bad_front_matter(tmp_path: Path) -> None:
    """The user reads once about files that are no skills; the others are used, and the session goes on."""
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "bytes.md").write_bytes(b"---\nname: \xff\n---\n")
    write(tmp_path / "good.md", "Good.")
    (tmp_path / "folder.md").mkdir()
    os.mkfifo(tmp_path / "pipe.md")
    registry = learned(tmp_path)
    first = await submit(registry, "good")
    assert first.context_injection == "Skill good\nGood."
    assert first.user_message is not None
    assert first.user_message.startswith("These skills are left out, the others are used. ")
    assert "bytes.md: it cannot be read (UnicodeDecodeError); " in first.user_message
    assert first.user_message.endswith(f"; and {len(BROKEN) + 1 - 3} more")
    assert (first.user_message_level, first.all_succeeded) == ("warning", True)
    assert (await submit(registry, "good")).user_message is None
    assert (await submit(registry, "nothing", "t")).user_message == first.user_message


@pytest.mark.parametrize(("name", "why"), [("none.md", "it has no front matter"), ("open.md", "has no end"),
    ("yaml.md", "its front matter is no YAML in line 2"), ("list.md", "no mapping"), ("name.md", "have to be text"),
    ("keys.md", "a list of texts"), ("dash.md", "have a word"), ("huge.md", "larger than 262,144 bytes"),
    ("deep.md", "no YAML")])  # fmt: skip
async def test_what_is_wrong_is_said(tmp_path: Path, name: str, why: str) -> None:
    """The message names the file and what is wrong with it."""
    (tmp_path / name).write_text(BROKEN[name], encoding="utf-8")
    message = (await submit(learned(tmp_path), "x")).user_message or ""
    assert f"{tmp_path / name}: " in message
    assert why in message


async def test_folders_that_are_not_there(tmp_path: Path) -> None:
    """A folder that is missing, or is a file, has no skills."""
    (tmp_path / "file").touch()
    registry = HookRegistry()
    Skills.from_config({"folders": [str(tmp_path / "none"), str(tmp_path / "file")]}).register(registry)
    assert (await submit(registry, "x")).action == "continue"


@pytest.mark.fault("F-LC-01")
async def test_a_project_brings_none_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without settings, the hook reads nothing of the folder in which a session runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for place in (".claude", ".amplifier", ".amplifier-hooks", "."):
        write(tmp_path / "project" / place / "skills" / "evil.md", "Obey.", front="keywords: [go]")
    monkeypatch.chdir(tmp_path / "project")
    registry = HookRegistry()
    Skills().register(registry)
    assert (await submit(registry, "go, evil")).action == "continue"


async def test_in_a_session(tmp_path: Path) -> None:
    """In a session the skill is in the context before the model is called."""
    write(tmp_path / "git.md", "Rebase.")
    context = RecordingContext()
    async with SessionCoordinator(hooks=learned(tmp_path), context=context) as session, session.turn("use git"):
        pass
    assert any("Skill git\nRebase." in message.content for message in context.messages)


@given(st.lists(st.text("ab ", max_size=8), max_size=4), st.text("ab \n-", max_size=30))
def test_matching_is_whole_words_in_order(names: list[str], prompt: str) -> None:
    """A skill matches exactly when the words of its name stand one after the other in the prompt."""
    named = [(number, name) for number, name in enumerate(names) if name.split()]
    made = [skills._make_skill(Path(str(number)), (0, 0, 0), {"name": name}, "") for number, name in named]
    index = skills._Index()
    for one in made:
        for phrase, worth in one.phrases:
            index.first.setdefault(phrase[0], []).append((phrase, worth, one))
    padded = f" {' '.join(prompt.replace('-', ' ').split())} "
    expected = {one.path for one in made if f" {' '.join(one.phrases[0][0])} " in padded}
    assert {one.path for one in index.match(prompt)} == expected
