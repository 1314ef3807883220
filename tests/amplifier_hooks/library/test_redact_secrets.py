"""Secrets are taken out of prompts, tool inputs and tool results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from amplifier_hooks import HookRegistry, HookResult, SessionCoordinator
from amplifier_hooks.library import RedactSecrets
from amplifier_hooks.library.redact_secrets import RedactSecretsSettings
from amplifier_hooks.record.log import AuditLog
from amplifier_hooks.record.log_files import AuditKey
from amplifier_hooks.testing import CollectingDisplay, RecordingContext, ScriptedApprover
from tests.secrets_to_find import FOUND

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rule("LIB-5")

TOKEN = "ghp_" + "a1B2" * 9
CLEAN = "[redacted: token]"


def watched(**settings: Any) -> HookRegistry:
    """Return a registry with the hook."""
    registry = HookRegistry()
    RedactSecrets(RedactSecretsSettings(**settings), environment={"MY_TOKEN": "swordfish-42"}).register(registry)
    return registry


@pytest.mark.fault("F-LC-06")
async def test_everywhere(tmp_path: Path) -> None:
    """No secret reaches a tool, another hook, the context, the screen, the host or the record."""
    registry, context, display = watched(), RecordingContext(), CollectingDisplay()
    reached: list[str] = []

    @registry.on("*", priority=400)
    async def others(event: str, data: Any) -> HookResult:
        reached.append(repr(dict(data)))
        return HookResult.inject(f"about {data.get('result', event)}")

    def run(given: Any) -> Any:
        reached.append(repr(given))
        return {"out": [f"key: {TOKEN}", ("swordfish-42",)], "password": "hunter2", "lines": 7, "raw": b"x", TOKEN: 1}

    async with (
        AuditLog.open(tmp_path / "record.jsonl", key=AuditKey(b"\x07" * 32)) as log,
        SessionCoordinator(hooks=registry, context=context, display=display, audit=log) as session,
        session.turn(f"Use {TOKEN} please") as turn,
    ):
        given = {"command": f"curl -H 'X: {TOKEN}'", "env": {"API_KEY": "hunter2"}, "n": [1, None, True]}
        result = await session.call_tool("Bash", given, run)
    value = result.value
    assert value == {
        "out": [f"key: {CLEAN}", ("[redacted: known secret]",)],
        "password": "[redacted: value of a secret name]",
        "lines": 7,
        "raw": b"x",
        CLEAN: 1,
    }
    assert turn.prompt == f"Use {CLEAN} please"
    texts = [
        *reached,
        *context.texts,
        *map(str, display.messages),
        repr(value),
        (tmp_path / "record.jsonl").read_text(),
    ]
    for secret in (TOKEN, "hunter2", "swordfish-42"):
        assert not [text for text in texts if secret in text]
    assert "{'command': \"curl -H 'X: [redacted: token]'\"" in "".join(reached)
    assert "2 secrets (token, value of a secret name) taken out of the input of Bash" in str(display.messages)


async def test_asked_or_denied() -> None:
    """Instead of taking a secret out, a call can be asked about or denied, and a prompt denied."""
    approver = ScriptedApprover("Allow")
    given = {"command": f"login {TOKEN}"}
    seen: list[Any] = []
    async with SessionCoordinator(hooks=watched(inputs="ask"), approvals=approver) as session:
        assert (await session.call_tool("Bash", given, seen.append)).ok
    assert seen == [given]
    assert TOKEN not in approver.requests[0].prompt
    async with SessionCoordinator(hooks=watched(inputs="deny", prompts="deny")) as session:
        result = await session.call_tool("Bash", given, seen.append)
        assert "holds 1 secret (token)" in (result.reason or "")
        async with session.turn(f"Use {TOKEN}") as turn:
            assert turn.denied
    assert len(seen) == 1


async def test_left_alone() -> None:
    """A place that is set to `leave`, and tools that do not match, are left alone."""
    for registry in (watched(inputs="leave", results="leave", prompts="leave"), watched(match="Fetch")):
        async with SessionCoordinator(hooks=registry) as session:
            result = await session.call_tool("Bash", {"command": TOKEN}, lambda given: given["command"])
        assert result.value == TOKEN


async def test_known() -> None:
    """A known secret is found by its value, and never shown with the settings."""
    settings = RedactSecretsSettings.model_validate({"known": ["correct horse battery"]})
    registry = HookRegistry()
    RedactSecrets(settings, environment={}).register(registry)
    outcome = await registry.emit("prompt:submit", {"prompt": "it is correct horse battery"})
    assert outcome.data["prompt"] == "it is [redacted: known secret]"
    assert "horse" not in repr(settings)


def circular() -> list[Any]:
    """Return a list that contains itself."""
    ring: list[Any] = [TOKEN]
    ring.append(ring)
    return ring


@pytest.mark.parametrize("result", [circular(), [[None]] * 200_000], ids=["circular", "wide"])
async def test_withheld(result: Any) -> None:
    """A result that cannot be searched is withheld, with a reason that the host can read."""
    async with SessionCoordinator(hooks=watched()) as session:
        outcome = await session.call_tool("Bash", {}, lambda _: result)
    assert not outcome.ok
    assert outcome.value is None
    assert "the result of Bash cannot be searched for secrets" in str(outcome.error)


@attrs.frozen
class Answer:
    """A tool's result that is an object."""

    text: str


@pytest.mark.parametrize(
    "result",
    [
        f"it is {TOKEN}".encode(),
        {"a": bytearray(TOKEN, "ascii")},
        {TOKEN},
        Answer(TOKEN),
        [Answer(f"\ud800{TOKEN}")],
        Answer(f"a\n{TOKEN}"),
    ],
    ids=["bytes", "bytearray", "set", "object", "surrogate", "line"],
)
async def test_objects(result: Any) -> None:
    """A result that is no text is withheld if it shows a secret; otherwise it passes unchanged."""
    fine = (b"bytes", {"set"}, Answer("text"), None, 3.5)
    async with SessionCoordinator(hooks=watched()) as session:
        assert not (await session.call_tool("Bash", {}, lambda _: result)).ok
        assert (await session.call_tool("Bash", {}, lambda _: fine)).value == fine


async def test_lists_of_a_secret_name() -> None:
    """Texts in a list under a secret's name are secrets as well; numbers and members of the list are not."""
    given = {"passwords": ["hunter2", ["hunter3", 4]], "token": {"kind": "none"}, "names": ["ann"]}
    outcome = await watched().emit("tool:pre", {"tool_name": "Login", "tool_input": given})
    hidden = "[redacted: value of a secret name]"
    assert outcome.data["tool_input"] == {**given, "passwords": [hidden, [hidden, 4]]}


async def test_named_beside() -> None:
    """A value is a secret also if the secret's name is beside it, and not over it."""
    env = [{"name": "DB_PASSWORD", "value": "hunter2"}, {"key": "LANG", "value": "C"}, {"name": "token"}]
    outcome = await watched().emit("tool:pre", {"tool_name": "Run", "tool_input": {"env": env}})
    assert outcome.data["tool_input"]["env"] == [
        {"name": "DB_PASSWORD", "value": "[redacted: value of a secret name]"},
        *env[1:],
    ]


async def test_objects_without() -> None:
    """An object that shows a mask, a type or a call in place of a password passes."""
    fine = (Answer("password=SecretStr('**********')"), b"token = get_token(1)")
    async with SessionCoordinator(hooks=watched()) as session:
        assert (await session.call_tool("Bash", {}, lambda _: fine)).value == fine


async def test_unsearchable_input() -> None:
    """Input that cannot be searched is denied."""
    outcome = await watched().emit("tool:pre", {"tool_name": "Bash", "tool_input": {"x": circular()}})
    assert outcome.denied


async def test_tool_errors() -> None:
    """The model reads a tool's error without its secrets; the host gets the error itself."""

    def broken(_given: Any) -> None:
        raise OSError("no disk at postgres://robin:hunter22@example.org/")

    seen: list[Any] = []
    hooks = watched()
    for event in ("tool:error", "error:tool"):
        hooks.observe(event, lambda event, data, outcome: seen.append(data["error"]["message"]), name=event)
    async with SessionCoordinator(hooks=hooks) as session:
        outcome = await session.call_tool("Bash", {}, broken)
    assert outcome.reason == "no disk at postgres://robin:[redacted: password in a URL]@example.org/"
    assert seen == [outcome.reason] * 2
    assert isinstance(outcome.error, OSError)
    assert "hunter22" in str(outcome.error)


@pytest.mark.parametrize(("text", "secret"), [(text, secret) for text, _, secret in FOUND], ids=lambda text: text[:12])
async def test_twice(text: str, secret: str) -> None:
    """Every kind of secret is taken out, and its replacement is not a secret."""
    registry = HookRegistry()
    known = {"known": ["correct horse battery"]}
    RedactSecrets(RedactSecretsSettings.model_validate(known), environment={"MY_TOKEN": "swordfish-42"}).register(
        registry
    )
    once = await registry.emit("prompt:submit", {"prompt": text})
    assert secret not in once.data["prompt"]
    assert once.modified
    assert not (await registry.emit("prompt:submit", {"prompt": once.data["prompt"]})).modified


async def test_names_twice() -> None:
    """A value under a secret's name is taken out once."""
    once = await watched().emit("tool:pre", {"tool_name": "Login", "tool_input": {"password": "hunter2", "pin": ""}})
    assert once.data["tool_input"] == {"password": "[redacted: value of a secret name]", "pin": ""}
    assert not (await watched().emit("tool:pre", {"tool_name": "Login", **once.data})).modified


async def test_elsewhere() -> None:
    """In a loop that only reports results, the result is replaced in the outcome."""
    outcome = await watched().emit("tool:post", {"tool_name": "Bash", "tool_input": {}, "result": f"it is {TOKEN}"})
    assert outcome.data["result"] == f"it is {CLEAN}"
    assert outcome.user_message == "1 secret (token) taken out of the result of Bash"


PERSONAL = ("email", "card", "phone")


async def test_personal_data() -> None:
    """Personal data that the setting names is taken out like a secret, also a card number that is a number in JSON."""
    registry = watched(personal=PERSONAL)
    given = {
        "note": f"robin@example.org, 4111 1111 1111 1111 and {TOKEN}",
        "cards": [4111111111111111, 4111111111111112, True, 3.5],
        "call": "+44 20 7946 0958",
    }
    outcome = await registry.emit("tool:pre", {"tool_name": "Mail", "tool_input": given})
    assert outcome.data["tool_input"] == {
        "note": f"[redacted: e-mail address], [redacted: card number] and {CLEAN}",
        "cards": ["[redacted: card number]", 4111111111111112, True, 3.5],
        "call": "[redacted: phone number]",
    }
    assert outcome.user_message == (
        "5 private parts (card number, e-mail address, phone number, token) taken out of the input of Mail"
    )


async def test_personal_data_without_the_setting() -> None:
    """Personal data stays where no setting names it, and each kind is set by itself."""
    text = "robin@example.org, 4111 1111 1111 1111, +44 20 7946 0958"
    assert not (await watched().emit("prompt:submit", {"prompt": text})).modified
    outcome = await watched(personal=["card"]).emit("prompt:submit", {"prompt": text})
    assert outcome.data["prompt"] == "robin@example.org, [redacted: card number], +44 20 7946 0958"
    assert outcome.user_message == "1 personal detail (card number) taken out of the prompt"


async def test_personal_data_that_cannot_be_taken_out() -> None:
    """A value that is no text, and shows personal data, denies the call."""
    outcome = await watched(personal=PERSONAL).emit(
        "tool:pre", {"tool_name": "Mail", "tool_input": {"raw": b"a@b.org"}}
    )
    assert outcome.denied
