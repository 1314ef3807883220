"""The stage of the conformance story: one SDK, its agent with one tool, and a model with a script.

The tool is called `write` and takes `path` and `text`; it keeps its arguments, and answers "wrote PATH". A new stage
stands for another process in the story, and takes along only data that the SDK can store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field, frozen

from tests.scripted_steps import Say, Use

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_hooks import SessionCoordinator

__all__ = ["Ran", "Say", "Stage", "Use", "writes"]


def writes(path: str, text: str = "hello") -> Use:
    """Return the model's call of the tool."""
    return Use("write", {"path": path, "text": text})


@frozen(kw_only=True)
class Ran:
    """The result of one run of the agent."""

    read: list[str]
    """The input of the model, a text for each call."""
    stored: Any = None
    """The state of an interrupted run, as the SDK would store it."""
    refused: str | None = None
    """The reason why the run ended early, if the SDK receives one."""
    answers: list[Any] = field(factory=list)
    """The answer of the tool, if the SDK's host reads it in place of the model."""


class Stage(ABC):
    """One SDK."""

    tool: ClassVar[str] = "write"
    """Name of the tool that hooks see."""
    failure: ClassVar[str] = "the disk is full"
    """Text that the model reads about a tool that fails."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """Acts of the story that the SDK does not support, with the reasons; each is a row of docs/adapters.md."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wrote: list[dict[str, Any]] = []
        """Arguments of the tool's calls, in order."""
        self.broken = False
        """True if the tool fails."""

    def write(self, path: str, text: str) -> str:
        """Write a file, as the tool does."""
        if self.broken:
            raise OSError("the disk is full")
        self.wrote.append({"path": path, "text": text})
        return f"wrote {path}"

    @abstractmethod
    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run the agent in this session, with a model that gives these answers."""

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Resume an interrupted run, if the SDK can; the model then gives these answers."""
        raise NotImplementedError
