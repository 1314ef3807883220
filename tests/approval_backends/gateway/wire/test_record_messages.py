import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_hooks.impacts import Impact
from amplifier_hooks.ports import Assessment, Question
from amplifier_hooks.text.escape import for_page
from approval_backends.gateway.wire.frames import GatewayCall, read, write_frame
from approval_backends.gateway.wire.messages import CardView, fields
from approval_backends.gateway.wire.record_messages import (
    PART,
    card_view,
    ending,
    grant_row,
    history_row,
    part,
    permission,
    refusal_message,
    rights,
    row,
)
from approval_backends.lifecycle import (
    Decider,
    Moment,
    Move,
    Refusal,
    RequestRecord,
    grants_of,
    judge,
    move_request,
    new_record,
    use_of,
)
from approval_backends.testing import ALWAYS, DENY, ROBIN, MovableClock, a_request, an_answer

NOW = Moment(MovableClock()().wall)
SPECIFICATION = Path(__file__).parents[4] / "specs" / "wire.md"
HOSTILE = "<img onerror=x>\u202egpj\u200b" + " " * 1_204 + "\ud800" + "\x1b[2J"


def a_record(**changes: Any) -> RequestRecord:
    """Return a pending record."""
    return new_record(a_request(id="apr-1", **changes), NOW)


def decided(record: RequestRecord, **changes: Any) -> RequestRecord:
    """Return the record with an answer that counts."""
    after = judge(record, an_answer(record.request, **changes), Moment(NOW.wall + timedelta(seconds=7)))
    assert isinstance(after, RequestRecord)
    return after


def ended(record: RequestRecord, move: Move, seconds: float, reason: str = "") -> RequestRecord:
    """Return the record after another change."""
    after = move_request(record, move, Moment(NOW.wall + timedelta(seconds=seconds)), reason=reason)
    assert isinstance(after, RequestRecord)
    return after


def words(asked: dict[str, Any]) -> str:
    """Return the text of a question of the plain protocol."""
    [content] = asked["toolCall"]["content"]
    return str(content["content"]["text"])


@pytest.mark.rule("BCK-3", "APR-2", "WIR-5")
def test_card_has_everything() -> None:
    """A card holds all there is to know about a request, with the exact arguments."""
    record = a_record(arguments={"file_path": "a.py", "content": "x\ny", "description": "Say hello"}, risk="high")
    card = card_view(record)
    assert (card.row.verb, card.row.what, card.row.risk, card.row.default) == ("Write", "a.py", "high", "deny")
    assert (card.row.agent, card.row.tool, card.event, card.cwd) == ("coder", "Write", "tool:pre", "/project")
    assert card.row.digest == record.request.digest
    assert card.row.expires == record.expires
    assert [view.name for view in card.views] == ["Diff", "Raw"]
    assert card.views[0].lines is not None
    assert [(line.kind, line.text) for line in card.views[0].lines] == [
        ("add", "x"),
        ("add", "y"),
        ("part", "No newline at the end"),
    ]
    assert card.views[1].text == '{\n  "content": "x\\ny",\n  "description": "Say hello",\n  "file_path": "a.py"\n}'
    assert [(why.hook, why.prompt) for why in card.questions] == [("guard", "Write it?")]
    assert card.claim == "Say hello"
    assert card.edit == '{\n  "file_path": "a.py",\n  "content": "x\\ny",\n  "description": "Say hello"\n}'
    assert card.odd == []
    assert [option.kind for option in card.options] == ["allow_once", "reject_once", "reject_always"]
    assert card.always is not None
    assert card.always.covers == ["Any Write by coder in /project that raises the question “Write it?”."]
    assert (card.status, card.ending) == ("pending", None)


@pytest.mark.rule("APR-5", "WIR-5")
@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Question(hook="h", prompt="Go?"), "Any Write by coder in /project that raises the question “Go?”."),
        (
            Question(hook="h", prompt="Go?", key="k\u200b"),
            "Any Write by coder in /project for “k\\u{200B}”, with no impact beyond those of this call.",
        ),
        (Question(hook="h", prompt="Go?", scope="action"), "Write by coder in /project, exactly these arguments ("),
        (Question(hook="h", prompt=""), "Write by coder in /project, exactly these arguments ("),
    ],
)
def test_always_says_what_it_covers(question: Question, said: str) -> None:
    """A card states the reach of an "always" before it is chosen, in the words of the list of grants."""
    record = a_record(questions=(question,))
    always = card_view(record).always
    assert always is not None
    assert always.covers[0].startswith(said)
    assert always.ends.startswith("With this session")
    (grant,) = grants_of(ended(decided(record, option=ALWAYS), "claim", 8))
    assert grant_row(grant).covers == always.covers[0]
    assert grant_row(grant).session == "session-1"
    uses = [use_of(record.request, NOW)] * 7
    assert len(grant_row(grant, uses).uses) == 5


@pytest.mark.rule("APR-5", "WIR-5")
def test_always_for_every_tool() -> None:
    """The card of a question with a key says that an "always" is for every tool, if impacts bound it."""
    questions = (Question(hook="h", prompt="Go?", key="k"),)
    always = card_view(a_record(questions=questions, impacts=(Impact("reads"),))).always
    assert always is not None
    assert always.covers == ["Any call by coder in /project for “k”, with no impact beyond those of this call."]
    assert always.leaves.startswith("Other agents, directories or sessions; other questions;")
    always = card_view(a_record(questions=questions)).always
    assert always is not None
    assert always.leaves.startswith("Other agents, tools, directories or sessions; other questions;")


@pytest.mark.rule("APR-5", "WIR-8")
def test_always_that_outlives_the_session() -> None:
    """A kept grant states that it holds in every session, and until when, in the words of the list of grants."""
    questions = (Question(hook="a", prompt="Go?"), Question(hook="b", prompt="Go?", scope="action"))
    record = a_record(questions=questions, keep=7 * 86_400.0)
    always = card_view(record).always
    assert always is not None
    assert always.ends.startswith("After 7 days")
    assert "sessions" not in always.leaves
    assert [sentence.partition(" in every session")[0] for sentence in always.covers] == [
        "Any Write by coder in /project",
        "Write by coder in /project",
    ]
    grant, exact = grants_of(ended(decided(record, option=ALWAYS), "claim", 8))
    assert [grant_row(grant).covers, grant_row(exact).covers] == always.covers
    assert grant_row(grant).session is None
    assert grant_row(grant).expires is not None


@pytest.mark.rule("WIR-5")
def test_no_always_where_none_is_offered() -> None:
    """A card speaks of "always" only if it can be chosen."""
    assert card_view(a_record(options=(DENY,))).always is None


@pytest.mark.rule("WIR-5", "INJ-8")
@pytest.mark.fault("F-WS-13")
def test_hostile_texts() -> None:
    """No text of a card, a row or an ending keeps a character that hides, reorders or steers."""
    record = a_record(
        arguments={"command": HOSTILE, "description": HOSTILE},
        agent=HOSTILE,
        tool=HOSTILE,
        cwd=HOSTILE,
        session=HOSTILE,
        questions=(Question(hook=HOSTILE, prompt=HOSTILE, version=HOSTILE),),
        assessments=(Assessment(by=HOSTILE, risk="medium", reason=HOSTILE),),
    )
    by = Decider(name=HOSTILE, channel=HOSTILE)
    denied = decided(record, by=by, option=DENY, message=HOSTILE)
    card = card_view(record)
    assert card.views[0].text == for_page(HOSTILE)
    shown = [fields(card), fields(history_row(denied)), fields(rights(by)), fields(refusal_message(_late(denied)))]
    keys = ("Id", "digest")
    for text in (text for message in shown for name, text in _texts("", message) if not name.endswith(keys)):
        assert text.replace("\n", "").isprintable()
        assert " " * 65 not in text or text.startswith("{")  # but in the exact arguments
    assert read(write_frame(GatewayCall("1", "m", {"shown": shown}))) == GatewayCall("1", "m", {"shown": shown})


def _late(record: RequestRecord) -> Refusal:
    refusal = judge(record, an_answer(record.request), NOW)
    assert isinstance(refusal, Refusal)
    return refusal


def _texts(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(name, value)]
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _texts(key, inner)]
    return [pair for inner in value for pair in _texts(name, inner)] if isinstance(value, list) else []


@pytest.mark.slow
@pytest.mark.rule("WIR-5")
@settings(max_examples=15, deadline=None)
@given(st.text(max_size=40), st.integers(0, 3))
def test_long_views_come_in_parts(text: str, times: int) -> None:
    """The parts of a long view make up the whole, none is larger than agreed, and none is missing."""
    content = "\n".join([text, "y" * 5_000] * (20 * times + 1))
    record = a_record(arguments={"file_path": "a", "content": content, "command": text * 2_000})
    whole: dict[str, str] = {}
    for view in card_view(record).views:
        size, got, step = 0, [], part(record, view.name, 0)
        assert step == view
        while step is not None:
            got += [step.text or ""] + ["\n" * (line.new is not None) + line.text for line in step.lines or ()]
            size = max(size, sum(map(len, got[-len(step.lines or "1") :])))
            step = part(record, view.name, step.next) if step.next is not None else None
        assert size <= PART
        whole[view.name] = "".join(got)
    expected = "\n".join(map(for_page, content.split("\n"))).removesuffix("\n")
    assert whole["Diff"].removeprefix("\n").removesuffix("No newline at the end") == expected
    assert '"content"' in whole["Raw"]


@pytest.mark.rule("APR-7", "WIR-4")
def test_ending_by_a_person() -> None:
    """An ending names who decided what, on which channel, when, and how long it took."""
    after = ending(decided(a_record(), option=DENY, message="not on a Friday"))
    assert (after.status, after.allowed, after.by, after.channel) == ("denied", False, "Robin", "check")
    assert (after.label, after.kind, after.took, after.message) == ("Deny", "reject_once", 7.0, "not on a Friday")
    assert (after.outcome.outcome, after.outcome.option_id) == ("selected", "deny")
    assert ending(decided(a_record(), arguments={"a": 1})).edited


@pytest.mark.rule("APR-4", "WIR-4")
@pytest.mark.parametrize(("default", "option"), [("deny", "deny"), ("allow", "allow")])
def test_ending_by_silence(default: str, option: str) -> None:
    """An expired request selects the default with its reason: no approver decided, and nothing was cancelled."""
    after = ending(ended(a_record(default=default), "expire", 61))
    assert (after.status, after.by, after.reason) == ("expired", None, "no answer came in time")
    assert (after.outcome.outcome, after.outcome.option_id) == ("selected", option)
    assert after.allowed == (default == "allow")


@pytest.mark.rule("WIR-4")
def test_ending_by_taking_back() -> None:
    """A withdrawn request is cancelled, even if an approver had approved it."""
    for record in (a_record(), decided(a_record())):
        after = ending(ended(record, "withdraw", 8, "the turn ended"))
        assert (after.status, after.outcome.outcome, after.allowed) == ("cancelled", "cancelled", False)
        assert (after.by, after.reason) == (None, "the turn ended")


@pytest.mark.rule("BCK-2", "WIR-7")
def test_permission() -> None:
    """A client of the plain protocol receives the exact arguments, the options, and the facts they are bound to."""
    record = a_record(arguments={"command": "rm -r build", "odd": [None, "\ud800", 1.5]})
    asked = permission(record, NOW.wall)
    assert asked["toolCall"]["rawInput"] == {"command": "rm -r build", "odd": [None, "\ud800", 1.5]}
    assert (asked["toolCall"]["title"], asked["toolCall"]["kind"]) == ("rm -r build", "execute")
    assert words(asked).splitlines()[0] == "guard asks: Write it?"
    assert [option["optionId"] for option in asked["options"]] == ["allow", "always", "deny", "never"]
    assert asked["_meta"]["amplifier-hooks"]["digest"] == record.request.digest


@pytest.mark.rule("BCK-2", "WIR-7")
def test_fields_of_a_permission() -> None:
    """A question of the plain protocol has the fields of the specification's example, no more and none less."""
    record = a_record(
        arguments={}, assessments=(Assessment(by="h", risk="medium", reason="r"),), impacts=(Impact("reads"),)
    )
    frames = map(read, re.findall(r"^```json\n(.*?)^```$", SPECIFICATION.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    [example] = [one for one in frames if isinstance(one, GatewayCall) and one.method == "session/request_permission"]
    asked = permission(record, NOW.wall)
    assert _names(asked) == _names({**example.params, "toolCall": {**example.params["toolCall"], "rawInput": {}}})


def _names(value: Any) -> Any:
    """Return the names in a message, and the first item of each list."""
    if isinstance(value, dict):
        return {name: _names(inner) for name, inner in value.items()}
    return [_names(value[0])] if isinstance(value, list) and value else None


@pytest.mark.rule("APR-13", "WIR-5", "WIR-7")
@pytest.mark.fault("F-APR-25")
def test_why_the_risk_is_high() -> None:
    """A card and a question of the plain protocol have every reason for the risk that counts, escaped."""
    assessments = (
        Assessment(by="egress", risk="high", reason="a \u202enew host"),
        Assessment(by="lint", risk="low", reason="only text"),
        Assessment(by="host", risk="high"),
        Assessment(by="rule:r", risk="high", reason="no\nAlways covers: nothing"),
    )
    record = a_record(risk="high", assessments=assessments, options=(DENY,))
    said = [
        {"by": "egress", "reason": "a \\u{202E}new host"},
        {"by": "rule:r", "reason": "no\nAlways covers: nothing"},
    ]
    assert fields(card_view(record))["riskReasons"] == said
    plain = permission(record, NOW.wall)
    assert plain["_meta"]["amplifier-hooks"]["riskReasons"] == said
    text = words(plain)
    assert text.splitlines()[1:] == [
        "High risk, says egress: a \\u{202E}new host",
        "High risk, says rule:r: no",
        "  | Always covers: nothing",
    ]


@pytest.mark.rule("APR-5", "WIR-7")
def test_permission_says_what_always_covers() -> None:
    """A client of the plain protocol reads what "always" covers and when it ends, where that is offered."""
    record = a_record()
    _asks, covers, ends, so_far = words(permission(record, NOW.wall)).splitlines()
    assert so_far == "Would have covered 0 calls of this session so far."
    assert covers == "Always covers: Any Write by coder in /project that raises the question “Write it?”."
    assert ends.startswith("Always ends: With this session")
    kept = a_record(keep=60.0)
    _asks, covers, ends, _so_far = words(permission(kept, NOW.wall)).splitlines()
    assert "in every session" in covers
    assert ends.startswith("Always ends: After 1 minute")
    assert words(permission(a_record(options=(DENY,)), NOW.wall)) == "guard asks: Write it?"


@pytest.mark.rule("WIR-7")
def test_what_was_not_shown_cannot_be_allowed() -> None:
    """Arguments too large to be sent are named as such, and only refusals are offered."""
    asked = permission(a_record(arguments={"content": "x" * 300_000}), NOW.wall)
    assert "rawInput" not in asked["toolCall"]
    assert "too large to be shown here (300,014 bytes)" in words(asked)
    assert [option["optionId"] for option in asked["options"]] == ["deny", "never"]
    assert len(write_frame(GatewayCall("1", "m", asked))) < 4_000


@pytest.mark.rule("WIR-4")
def test_keys_are_exact() -> None:
    """Ids are sent as they are, however odd."""
    record = a_record(session="s\u202e")
    assert (row(record).session_id, row(record).session) == ("s\u202e", "s\\u{202E}")
    assert row(a_record(tool="x" * 5_000)).tool.endswith(" bytes)")
    assert permission(record, NOW.wall)["sessionId"] == "s\u202e"


@pytest.mark.rule("WIR-2")
def test_rights() -> None:
    """A client receives its name and its rights."""
    assert fields(rights(ROBIN)) == {"name": "Robin", "channel": "check", "mayDecide": True}
    bounded = Decider(name="Kim", channel="web", sessions=frozenset({"b", "a"}), may_decide=False)
    assert fields(rights(bounded))["sessions"] == ["a", "b"]


@pytest.mark.rule("WIR-5")
def test_card_of_what_is_over() -> None:
    """A card can be looked at when its request is over, and shows its end."""
    card = card_view(decided(a_record()))
    assert isinstance(card, CardView)
    assert card.status == "approved"
    assert card.ending is not None


@pytest.mark.rule("WIR-5", "WIR-7")
def test_impacts_on_the_wire() -> None:
    """A card and a question of the plain protocol have every impact with its meaning in words, escaped."""
    impacts = (Impact("deletes_outside", "~/a\u202eb", "x\u202e"), Impact("reads"))
    record = a_record(impacts=impacts)
    said = [
        {
            "kind": "deletes_outside",
            "meaning": "deletes outside the project folder",
            "place": "~/a\\u{202E}b",
            "reason": "x\\u{202E}",
        },
        {"kind": "reads", "meaning": "reads files, or the state of this machine", "place": "", "reason": ""},
    ]
    assert fields(card_view(record))["impacts"] == said
    assert permission(record, NOW.wall)["_meta"]["amplifier-hooks"]["impacts"] == said
