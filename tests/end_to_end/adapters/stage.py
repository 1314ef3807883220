"""Where the conformance story is played: one SDK, its agent with one tool, and a model with a script.

The tool is called `write` and takes `path` and `text`; it keeps what it was called with, and answers "wrote PATH". A
stage is made anew for what is another process in the story; what it may take along is what the SDK can store.
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
    """The model calls the tool."""
    return Use("write", {"path": path, "text": text})


@frozen(kw_only=True)
class Ran:
    """What one run of the agent came to."""

    read: list[str]
    """What the model was sent, a text for each call."""
    stored: Any = None
    """What the SDK gives out to go on later, where it was interrupted; as it would be stored."""
    refused: str | None = None
    """Why the run ended early, where the SDK is told so."""
    answers: list[Any] = field(factory=list)
    """What the tool answered, where the host of the SDK reads it rather than the model."""


class Stage(ABC):
    """One SDK."""

    tool: ClassVar[str] = "write"
    """What hooks see as the name of the tool."""
    failure: ClassVar[str] = "the disk is full"
    """What the SDK tells of a tool that fails."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """Acts of the story that the SDK has no place for, and why; each is a row of docs/adapters.md."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wrote: list[dict[str, Any]] = []
        """What the tool was called with, in order."""
        self.broken = False
        """Whether the tool fails."""

    def write(self, path: str, text: str) -> str:
        """The tool."""
        if self.broken:
            raise OSError("the disk is full")
        self.wrote.append({"path": path, "text": text})
        return f"wrote {path}"

    @abstractmethod
    async def run(self, session: SessionCoordinator, *script: Use | Say, prompt: str = "do it") -> Ran:
        """Run the agent in this session, with a model that says this."""

    async def resume(self, session: SessionCoordinator, stored: Any, *script: Use | Say) -> Ran:
        """Go on with an interrupted run, where the SDK can; the model then says this."""
        raise NotImplementedError
