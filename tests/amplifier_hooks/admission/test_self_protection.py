"""Self-protection as a session has it: the calls that it denies, where it is on, and its place on the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks import HookRegistry, HookResult, SelfProtection, SessionCoordinator
from amplifier_hooks.ports import ActionFacts, RuleVerdict
from amplifier_hooks.testing import CollectingAudit, ScriptedApprover

if TYPE_CHECKING:
    from pathlib import Path


class AllowAll:
    """Rules that allow everything."""

    digest = "all"
    report_only = False

    def judge(self, facts: ActionFacts) -> RuleVerdict:
        """Allow."""
        return RuleVerdict(action="allow", rule="all", answers=("*",))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a file of hooks and a folder below it."""
    (tmp_path / "amplifier-hooks.yaml").write_text("version: 1\n")
    (tmp_path / "sub").mkdir()
    return tmp_path


async def call(session: SessionCoordinator, tool: str, given: dict[str, Any], **options: Any) -> Any:
    """Call a tool."""
    return await session.call_tool(tool, given, lambda given: "RAN", **options)


@pytest.mark.rule("SLF-1")
@pytest.mark.parametrize("folder", [".", "sub"])
async def test_the_file_of_hooks_is_denied_from_every_folder(project: Path, folder: str) -> None:
    """A write to the file of hooks is denied wherever the session runs, and the denial names file and reason."""
    path = project / "amplifier-hooks.yaml"
    async with SessionCoordinator(cwd=project / folder, self_protection=SelfProtection()) as session:
        outcome = await call(session, "Write", {"file_path": str(path), "content": ""})
        assert (outcome.status, outcome.by, outcome.cause) == ("denied", "rule:self-protection", "denied_by_rule")
        assert str(path) in outcome.reason
        assert "an operator does that" in outcome.reason
        assert (await call(session, "Read", {"file_path": str(path)})).status == "ok"


@pytest.mark.rule("SLF-1")
async def test_neither_a_rule_nor_a_person_allows_it(project: Path) -> None:
    """No rule and no person allows a protected call, and no person is asked about it."""
    registry, person = HookRegistry(), ScriptedApprover("Allow")
    registry.gate("tool:pre", lambda event, data: HookResult.ask("Really?"))
    async with SessionCoordinator(
        registry, cwd=project, approvals=person, rules=AllowAll(), self_protection=SelfProtection()
    ) as session:
        outcome = await call(session, "Bash", {"command": "amplifier-hooks validate --trust"})
    assert (outcome.status, person.requests) == ("denied", [])


@pytest.mark.rule("SLF-1")
async def test_report_only_rules_leave_it_in_force(project: Path) -> None:
    """Rules that stop nothing do not make the self-protection beside them stop nothing."""
    rules = AllowAll()
    rules.report_only = True
    async with SessionCoordinator(cwd=project, rules=rules, self_protection=SelfProtection()) as session:
        assert (await call(session, "Write", {"file_path": "amplifier-hooks.yaml"})).denied


@pytest.mark.rule("SLF-1")
async def test_paths_of_the_embedder(project: Path) -> None:
    """An embedder protects paths of its own, also those that are named later, and links to them."""
    (project / "rules").mkdir()
    (project / "link").symlink_to(project / "rules")
    later: list[Path] = []
    protection = SelfProtection(paths=(project / "link",), more=lambda: later)
    async with SessionCoordinator(cwd=project, self_protection=protection) as session:
        assert (await call(session, "Write", {"file_path": "rules/a.py"})).denied
        assert (await call(session, "Write", {"file_path": "sub/guard.py"})).status == "ok"
        later.append(project / "sub" / "guard.py")
        assert (await call(session, "Write", {"file_path": "sub/guard.py"})).denied
        assert (await call(session, "Write", {"file_path": "guard.py"}, cwd=project / "sub")).denied


@pytest.mark.rule("SLF-1")
async def test_an_event_that_the_host_emits_is_protected(project: Path) -> None:
    """A host that emits `tool:pre` itself gets the denial as the outcome."""
    async with SessionCoordinator(cwd=project, self_protection=SelfProtection()) as session:
        given = {"tool_name": "Write", "tool_input": {"file_path": ".claude/settings.json"}}
        assert (await session.emit("tool:pre", given)).denied


@pytest.mark.rule("SLF-1")
async def test_middleware_cannot_turn_to_a_protected_path(project: Path) -> None:
    """A change that middleware makes after the permit is looked at again."""
    registry = HookRegistry()
    ran: list[Any] = []

    async def layer(context: Any, call_next: Any) -> Any:
        context.arguments = {"file_path": "amplifier-hooks.yaml"}
        return await call_next()

    registry.around("tool", layer)
    async with SessionCoordinator(registry, cwd=project, self_protection=SelfProtection()) as session:
        await session.call_tool("Write", {"file_path": "a"}, ran.append)
    assert {"file_path": "amplifier-hooks.yaml"} not in ran


@pytest.mark.rule("SLF-2")
async def test_off_by_default_in_the_library(project: Path) -> None:
    """A session without the option denies nothing for it, and consults no rules."""
    audit = CollectingAudit()
    async with SessionCoordinator(cwd=project, audit=audit) as session:
        assert (await call(session, "Write", {"file_path": "amplifier-hooks.yaml"})).status == "ok"
        assert session._session.rules is None
    assert "self_protection.off" not in audit.kinds


@pytest.mark.rule("SLF-2")
async def test_switching_it_off_is_on_record(project: Path) -> None:
    """A session whose operator switched it off says so on its record, and so does a child that leaves it out."""
    audit = CollectingAudit()
    off = SelfProtection(off="--no-self-protection")
    async with SessionCoordinator(cwd=project, audit=audit, self_protection=off) as session:
        assert (await call(session, "Write", {"file_path": "amplifier-hooks.yaml"})).status == "ok"
    assert [one["reason"] for one in audit.facts("self_protection.off")] == ["--no-self-protection"]
    audit = CollectingAudit()
    async with SessionCoordinator(cwd=project, audit=audit, self_protection=SelfProtection()) as session:
        async with session.child("helper") as child:
            assert (await call(child, "Write", {"file_path": "amplifier-hooks.yaml"})).denied
        async with session.child("helper", self_protection=None) as child:
            assert (await call(child, "Write", {"file_path": "amplifier-hooks.yaml"})).status == "ok"
    assert [one["reason"] for one in audit.facts("self_protection.off")] == ["its parent left it out"]
