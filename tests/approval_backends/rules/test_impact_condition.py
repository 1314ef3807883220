"""The condition `impact` of rules, over real commands in a scratch project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_hooks.ports import ActionFacts
from approval_backends.errors import InvalidRules
from approval_backends.rules.policy import Rules

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("BCK-9")

FREE = "[reads, writes_tree, writes_temporary, deletes_one, runs_project, git_local]"
ALLOW = f"- {{id: free, action: allow, tool: '*', impact: {FREE}, other_arguments: [description], hooks: '*'}}\n"
DENY = "- {id: secrets, action: deny, tool: '*', impact: [reads_secret, git_publishes], reason: No.}\n"


def judge(text: str, cwd: Path | str, tool: str = "Bash", **arguments: Any) -> str | None:
    """Return the action of rules about a call in a folder."""
    facts = ActionFacts(tool=tool, arguments=arguments, event="tool:pre", session="s", tenant="", cwd=str(cwd))
    verdict = Rules(f"version: 1\nrules:\n{text}".encode()).judge(facts)
    return verdict.action if verdict else None


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("ls -la | head -3 && git status", "allow"),
        ("cd src && for f in a b; do touch $f; done; pytest -q", "allow"),
        ("echo $(git rev-parse HEAD) > version.txt", "allow"),
        ("ls; rm -rf ~", None),
        ("git status && git push", None),
        ("$X", None),
        ("frobnicate", None),
        ("cat .env", None),
    ],
)
def test_an_allow_covers_a_compound_command_whose_impacts_are_all_in_its_list(
    command: str, action: str | None, tmp_path: Path
) -> None:
    """An allow by impact covers any command all of whose impacts are listed, and no other one."""
    assert judge(ALLOW, tmp_path, command=command) == action


def test_a_deny_is_met_by_one_impact(tmp_path: Path) -> None:
    """One listed impact meets a deny, whatever else the call does; the deny wins over an allow."""
    assert judge(ALLOW + DENY, tmp_path, command="ls && sh -c 'cat ~/.ssh/id_rsa'") == "deny"
    assert judge(ALLOW + DENY, tmp_path, command="git push origin main") == "deny"
    assert judge(ALLOW + DENY, tmp_path, tool="Read", file_path=".env") == "deny"
    assert judge(ALLOW + DENY, tmp_path, tool="Read", file_path="src/app.py") == "allow"


def test_an_allow_accepts_only_arguments_that_are_read_or_named(tmp_path: Path) -> None:
    """An allow by impact accepts the arguments that the analysis reads and those it names, and no other ones."""
    assert judge(ALLOW, tmp_path, command="ls", description="look") == "allow"
    assert judge(ALLOW, tmp_path, command="ls", env={"LD_PRELOAD": "x"}) is None


def test_links_are_followed(tmp_path: Path) -> None:
    """A link in the project counts as the file that it leads to."""
    (tmp_path / "notes").symlink_to("/etc")
    assert judge(ALLOW, tmp_path, command="echo x > notes/passwd") is None


def test_an_impact_that_cannot_be_known_counts_against_the_call() -> None:
    """Without a known folder, a deny is met and an allow is not."""
    assert judge(ALLOW, "", command="ls") is None
    assert judge(DENY, "", command="ls") == "deny"


def test_an_unknown_kind_is_a_mistake() -> None:
    """A kind of impact that does not exist is a mistake with its line."""
    with pytest.raises(InvalidRules, match="3: 'impact' has 'deletes', which is no kind of impact"):
        judge("- {id: a, action: deny, tool: X, impact: deletes}\n", "/")
