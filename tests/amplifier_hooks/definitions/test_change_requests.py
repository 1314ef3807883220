"""Approvers decide about changes of trusted files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions import DefinedHooks, TrustStore, WatchedFiles
from amplifier_hooks.definitions.change_requests import AGAIN_AFTER, LONGEST_TEXT, ChangeRequests
from amplifier_hooks.testing import CollectingAudit
from approval_backends.backend import StoreApprovals
from approval_backends.broker import Broker
from approval_backends.card.changes import change
from approval_backends.lifecycle import Decider, RequestRecord
from approval_backends.stores.memory import MemoryStore
from tests.stores import turns, until

pytestmark = pytest.mark.rule("TRU-7")

HOOK = "version: 1\nhooks:\n- {name: guard, event_type: tool:pre, priority: 10, handler_ref: command,"
ANN = Decider(name="ann", channel="page")


class Desk:
    """Watched files of a project, with approvers."""

    def __init__(self, project: Path, broker: Broker) -> None:
        self.project, self.broker, self.audit = project, broker, CollectingAudit()
        self.trust = TrustStore(project.parent / "state" / "trust.json")
        hooks = DefinedHooks(HookRegistry(), environment={})
        self.files = WatchedFiles(project / "hooks.yaml", hooks, trust=self.trust, environment={})
        self.requests = ChangeRequests(self.files, self.trust, StoreApprovals(broker), self.audit)
        self.looked = asyncio.Event()

    def guard(self, status: int) -> None:
        """Write the project's guard."""
        (self.project / "hooks.yaml").write_text(f"{HOOK} config: {{argv: [sh, guard.sh]}}}}\n")
        (self.project / "guard.sh").write_text(f"# the guard\nexit {status}\n")

    def look(self) -> None:
        """Look at the files once."""
        self.files.refresh()

    async def sleep(self, _seconds: float) -> None:
        """Wait until the files have been looked at."""
        await self.looked.wait()
        self.looked.clear()

    async def open_request(self) -> RequestRecord:
        """Return the open request, once there is one."""
        self.looked.set()
        found: list[RequestRecord] = []
        while not found:
            await asyncio.sleep(0)  # a turn of the loop
            found = await self.broker.pending(ANN)
        return found[0]

    async def denied(self) -> bool:
        """Ask the hooks in force about a call."""
        call = {"tool_name": "x", "session_id": "s", "tool_input": {}}
        return (await self.files.hooks.registry.emit("tool:pre", call)).denied


@asynccontextmanager
async def working(tmp_path: Path) -> AsyncIterator[Desk]:
    """Trust a project whose guard denies, and follow its files."""
    (tmp_path / "project").mkdir()
    async with Broker(MemoryStore()) as broker:
        desk = Desk(tmp_path / "project", broker)
        desk.guard(2)
        desk.look()
        assert desk.files.waiting is not None
        desk.trust.trust(desk.files.source, [desk.files.waiting])
        desk.look()
        async with following(desk):
            yield desk


async def restarted(desk: Desk) -> Desk:
    """Return the files of a desk as another process sees them, with the same store of trust."""
    again = Desk(desk.project, desk.broker)
    await desk.files.hooks.close()
    again.look()
    return again


@asynccontextmanager
async def following(desk: Desk) -> AsyncIterator[None]:
    """Follow the files of a desk for the block, with the approvers."""
    async with desk.broker:
        task = asyncio.create_task(desk.requests.follow(desk.sleep))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def settled(desk: Desk, record: RequestRecord, option: int) -> None:
    """Give an answer, and wait until it has had its effect."""
    given = await desk.broker.decide(record.id, record.request.digest, record.request.options[option].id, ANN)
    assert given.refusal is None
    await until(lambda: bool({"tool.done", "tool.denied"} & set(desk.audit.kinds)))


async def test_an_approver_accepts_a_change(tmp_path: Path) -> None:
    """The approver sees old and new text, the accepted bytes are in force at the next look, and the record has both."""
    async with working(tmp_path) as desk:
        desk.guard(0)
        desk.look()
        assert await desk.denied()
        record = await desk.open_request()
        assert (record.request.tool, record.request.risk) == ("TrustHooks", "high")
        assert [option.kind for option in record.request.options] == ["allow_once", "reject_once"]
        arguments = dict(record.request.arguments)
        shown = change(arguments)
        assert shown is not None
        assert [(line.kind, line.text) for line in shown.lines if line.kind in ("add", "del")] == [
            ("del", "exit 2"),
            ("add", "exit 0"),
        ]
        assert desk.files.waiting is not None
        assert arguments["digest"] == desk.files.waiting.digest
        (desk.project / "guard.sh").write_text("touch ran; exit 0\n")  # after the approver has seen the change
        await settled(desk, record, 0)
        desk.look()
        assert not await desk.denied()
        assert not (desk.project / "ran").exists()
        assert desk.files.waiting is not None
        assert "approval.decided" in desk.audit.kinds


async def test_an_approver_denies_a_change(tmp_path: Path) -> None:
    """After a denial the trusted set stays in force, and no approver is asked about the same change again."""
    async with working(tmp_path) as desk:
        desk.guard(0)
        desk.look()
        await settled(desk, await desk.open_request(), 1)
        desk.look()
        desk.looked.set()
        assert await desk.denied()
        assert not await desk.broker.pending(ANN)
        (desk.project / "guard.sh").write_text("exit 1\n")
        desk.look()
        assert "exit 1" in str((await desk.open_request()).request.arguments)


@pytest.mark.parametrize("ends", ["undone", "trusted elsewhere", "changed again"])
async def test_a_request_that_is_outdated_is_withdrawn(ends: str, tmp_path: Path) -> None:
    """When the change is undone, trusted elsewhere, or another one, its request is withdrawn."""
    async with working(tmp_path) as desk:
        desk.guard(0)
        desk.look()
        first = await desk.open_request()
        if ends == "trusted elsewhere":
            assert desk.files.waiting is not None
            desk.trust.trust(desk.files.source, [desk.files.waiting])
        else:
            desk.guard(2 if ends == "undone" else 3)
        desk.look()
        desk.looked.set()
        assert (await desk.broker.wait(first.id)).status == "cancelled"
        if ends == "changed again":
            assert "exit 3" in str((await desk.open_request()).request.arguments)
        else:
            assert not await desk.broker.pending(ANN)


async def test_all_changed_files_are_shown(tmp_path: Path) -> None:
    """Several files are several edits, with every digest; a text that is too long is named with its length."""
    async with working(tmp_path) as desk:
        (desk.project / "lib.sh").write_text("x" * (LONGEST_TEXT + 1))
        desk.guard(0)
        with (desk.project / "hooks.yaml").open("a") as file:
            file.write("files: [lib.sh]\n")
        desk.look()
        arguments = dict((await desk.open_request()).request.arguments)
        assert [one.partition(":")[0].rpartition("/")[2] for one in arguments["files"]] == [
            "guard.sh",
            "hooks.yaml",
            "lib.sh",
        ]
        assert "SHA-256 no file → " in arguments["files"][2]
        assert [len(edit["new_string"]) > 0 for edit in arguments["edits"]] == [True, True, True]
        assert "too long to be shown" in arguments["edits"][2]["new_string"]


async def test_a_text_without_room_is_named(tmp_path: Path) -> None:
    """A request has an edit for each changed file; it names those whose text it has no room for."""
    names = [f"lib{number}.sh" for number in range(5)]
    async with working(tmp_path) as desk:
        for name in names:
            (desk.project / name).write_text("x" * (LONGEST_TEXT - 1))
        with (desk.project / "hooks.yaml").open("a") as file:
            file.write(f"files: [{', '.join(names)}]\n")
        desk.look()
        arguments = dict((await desk.open_request()).request.arguments)
        assert len(arguments["edits"]) == len(arguments["files"])
        unshown = [edit["new_string"] for edit in arguments["edits"] if "no room for its text" in edit["new_string"]]
        assert ["lib" in one for one in unshown] == [True] * 3


async def test_a_program_that_ends_withdraws_its_request(tmp_path: Path) -> None:
    """When the program ends, its open request is withdrawn."""
    async with working(tmp_path) as desk:
        desk.guard(0)
        desk.look()
        record = await desk.open_request()
        broker = desk.broker
        desk.looked.clear()
        shown = await broker.show(record.id, ANN)
        assert shown is not None
        assert shown.status == "pending"
    async with broker:
        ended = await broker.show(record.id, ANN)
    assert ended is not None
    assert ended.status == "cancelled"


async def test_a_denial_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """After a restart no approver is asked about bytes that one denied, and one is asked about others."""
    async with working(tmp_path) as desk:
        desk.guard(0)
        desk.look()
        await settled(desk, await desk.open_request(), 1)
    again = await restarted(desk)
    async with following(again):
        assert "an approver denied it" in again.files.state.problem
        again.looked.set()
        assert await again.denied()
        assert not await again.broker.pending(ANN)
        again.guard(1)
        again.look()
        assert "exit 1" in str((await again.open_request()).request.arguments)
        again.guard(0)
        again.look()
        assert again.files.waiting is not None
        assert again.trust.denied(again.files.source, again.files.waiting)
        again.trust.trust(again.files.source, [again.files.waiting])
        assert not again.trust.denied(again.files.source, again.files.waiting)


@pytest.mark.parametrize("option", [0, 1])
async def test_the_removal_of_a_file_is_decided(option: int, tmp_path: Path) -> None:
    """A file that is gone is asked about: approved, its hooks leave; denied, they stay, also after a restart."""
    async with working(tmp_path) as desk:
        (desk.project / "hooks.yaml").unlink()
        desk.look()
        assert "it is gone" in desk.files.state.problem
        assert await desk.denied()
        record = await desk.open_request()
        assert record.request.prompt == "Take the hooks of hooks.yaml out of force? It is gone."
        arguments = dict(record.request.arguments)
        assert arguments["file_path"] == "hooks.yaml"
        assert (HOOK in arguments["old_string"], arguments["new_string"]) == (True, "")
        await settled(desk, record, option)
        desk.look()
        assert await desk.denied() is bool(option)
    again = await restarted(desk)
    async with following(again):
        again.looked.set()
        assert await again.denied() is bool(option)
        assert not await again.broker.pending(ANN)
        again.guard(3)
        again.look()
        assert "exit 3" in str((await again.open_request()).request.arguments)
        assert await again.denied() is bool(option)


async def test_a_request_that_failed_is_made_again(tmp_path: Path) -> None:
    """Where the record cannot be written, the change waits, and the approvers are asked once it can be."""
    async with working(tmp_path) as desk:
        desk.audit.error = OSError("disk full")
        desk.guard(0)
        desk.look()
        for _ in range(AGAIN_AFTER):
            desk.looked.set()
            await turns(20)
        assert not await desk.broker.pending(ANN)
        desk.audit.error = None
        for _ in range(AGAIN_AFTER):
            desk.looked.set()
            await turns(20)
        assert "exit 0" in str((await desk.open_request()).request.arguments)
        assert await desk.denied()
