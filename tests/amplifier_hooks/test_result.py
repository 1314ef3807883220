from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from amplifier_core import models as upstream  # type: ignore[import-untyped]
from hypothesis import given

from amplifier_hooks.dispatch.chain import DataView
from amplifier_hooks.dispatch.merge import merge
from amplifier_hooks.errors import InvalidResult
from amplifier_hooks.result import (
    ACTIONS,
    CONTINUE,
    DEFAULTS,
    LEVELS,
    LONGEST,
    RISKS,
    ROLES,
    SCOPES,
    Action,
    Answer,
    ContextInjection,
    Default,
    HookResult,
    Level,
    Outcome,
    Risk,
    Role,
    Scope,
    as_result,
)
from tests.cases import each
from tests.strategies import chains, injections, results

unchecked: Any = HookResult
"""The class for calls that ignore its types."""

OURS = {"approval_scope", "approval_key", "risk", "risk_reason"}
"""The fields that the upstream kernel does not have."""

FIELD_TABLE = {
    "action": "continue",
    "data": None,
    "reason": None,
    "context_injection": None,
    "context_injection_role": "system",
    "ephemeral": False,
    "append_to_last_tool_result": False,
    "context_injections": (),
    "approval_prompt": None,
    "approval_options": None,
    "approval_timeout": 300.0,
    "approval_default": "deny",
    "approval_scope": "prompt",
    "approval_key": None,
    "suppress_output": False,
    "user_message": None,
    "user_message_level": "info",
    "user_message_source": None,
    "risk": None,
    "risk_reason": None,
}

TEXTS = [
    *("reason", "context_injection", "approval_prompt", "approval_key"),
    *("user_message", "user_message_source", "risk_reason"),
]
FLAGS = ["ephemeral", "append_to_last_tool_result", "suppress_output"]
WORDS = {
    "action": ACTIONS,
    "context_injection_role": ROLES,
    "approval_default": DEFAULTS,
    "approval_scope": SCOPES,
    "user_message_level": LEVELS,
    "risk": RISKS,
}


class Word(str):
    """A subclass of str."""

    __slots__ = ()


class Equal:
    """An object that claims to be equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash("continue")


class Trap(Mapping[str, Any]):
    """A mapping that raises when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError

    def __iter__(self) -> Iterator[str]:
        return iter(["tool_input"])

    def __len__(self) -> int:
        return 1


class Snare(Sequence[Any]):
    """A list that raises when it is read."""

    def __getitem__(self, place: Any) -> Any:
        raise ZeroDivisionError

    def __len__(self) -> int:
        return 1


class Mirage(Snare):
    """A list whose length promises an item that it does not have."""

    def __getitem__(self, place: Any) -> Any:
        raise IndexError


def fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Return all fields of a record."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


# -- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-1")
def test_fields_and_defaults() -> None:
    """A result without arguments continues, and has each field at its documented default."""
    assert fields(HookResult()) == FIELD_TABLE
    assert HookResult() == CONTINUE


@pytest.mark.rule("RES-1")
def test_words() -> None:
    """A field that takes a word takes these words, in this order."""
    assert ACTIONS == ("continue", "deny", "modify", "inject_context", "ask_user")
    assert ROLES == ("system", "user", "assistant")
    assert LEVELS == ("info", "warning", "error")
    assert DEFAULTS == ("allow", "deny")
    assert SCOPES == ("prompt", "action")
    assert RISKS == ("low", "medium", "high")
    kinds = [(Action, ACTIONS), (Role, ROLES), (Level, LEVELS), (Default, DEFAULTS), (Scope, SCOPES), (Risk, RISKS)]
    for kind, words in kinds:
        assert get_args(kind) == words


@pytest.mark.rule("RES-1")
@pytest.mark.parametrize(
    ("theirs", "ours"), [(upstream.HookResult, HookResult), (upstream.ContextInjection, ContextInjection)]
)
def test_fields_are_those_of_the_upstream_kernel(theirs: Any, ours: type[msgspec.Struct]) -> None:
    """Every upstream field exists with the same default and the same words, and only the listed ones are ours alone."""
    our_fields = {field.name: field for field in msgspec.structs.fields(ours)}
    assert set(our_fields) - set(theirs.model_fields) == (OURS if ours is HookResult else set())
    for name, field in theirs.model_fields.items():
        mine = our_fields[name]
        if field.is_required():
            assert mine.required
        else:
            default = field.get_default(call_default_factory=True)
            assert mine.default == (tuple(default) if isinstance(default, list) else default)
        if get_origin(field.annotation) is Literal:
            assert set(get_args(mine.type)) == set(get_args(field.annotation))


@pytest.mark.rule("RES-1")
@given(results())
def test_any_result_survives_the_upstream_kernel(result: HookResult) -> None:
    """A result survives the upstream kernel's model and comes back equal, but for fields that only this side has."""
    said = {name: value for name, value in fields(result).items() if name not in OURS}
    said["context_injections"] = [fields(item) for item in result.context_injections]
    options = result.approval_options
    said["approval_options"] = None if options is None else list(options)
    ours = {name: value for name, value in fields(result).items() if name in OURS}
    assert msgspec.structs.replace(as_result(upstream.HookResult(**said)), **ours) == result


# -- what cannot be built ----------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-2")
@each(
    ("said", "sentence"),
    [
        ({"action": "modify"}, "modify without data: pass data={…} with the fields to replace"),
        ({"action": "modify", "data": None}, "modify without data: pass data={…} with the fields to replace"),
        (
            {"action": "inject_context"},
            "inject_context without text: pass context_injection='…' or context_injections=[…]",
        ),
        (
            {"action": "inject_context", "context_injection": "", "context_injections": []},
            "inject_context without text: pass context_injection='…' or context_injections=[…]",
        ),
        ({"action": "dney"}, "action 'dney': did you mean 'deny'?"),
        ({"action": "zzz"}, "action 'zzz': use one of continue, deny, modify, inject_context, ask_user"),
        ({"action": None}, "action of type NoneType: use one of continue, deny, modify, inject_context, ask_user"),
        ({"action": ["deny"]}, "action of type list: use one of continue, deny, modify, inject_context, ask_user"),
        ({"approval_timeout": -1}, "approval_timeout -1: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": -0.001}, "approval_timeout -0.001: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": math.nan}, "approval_timeout nan: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": math.inf}, "approval_timeout inf: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": -math.inf}, "approval_timeout -inf: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": 1e11}, "approval_timeout 100000000000.0: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": 10**5000}, "approval_timeout of type int: pass seconds from 0 to 10000000000"),
        ({"approval_timeout": True}, "approval_timeout True: pass seconds as a number"),
        ({"approval_timeout": "12"}, "approval_timeout '12': pass seconds as a number"),
        ({"approval_timeout": None}, "approval_timeout of type NoneType: pass seconds as a number"),
        ({"data": [1]}, "data of type list: pass a mapping of field to value"),
        ({"data": {1: 2}}, "data with a field 1: fields are named by a str"),
        ({"data": Trap()}, "data that cannot be read (ZeroDivisionError): pass a plain dict"),
        ({"approval_options": "Allow"}, "approval_options 'Allow': pass a list"),
        ({"approval_options": {"Allow"}}, "approval_options of type set: pass a list"),
        ({"approval_options": []}, "approval_options without a label: name at least one, or leave them out"),
        (
            {"approval_options": ["Allow", " \t"]},
            "approval_options with the label ' \\t': every label is a str and not blank",
        ),
        (
            {"approval_options": [None]},
            "approval_options with the label of type NoneType: every label is a str and not",
        ),
        ({"approval_options": ["No", "No"]}, "approval_options with the same label twice: give every option its own"),
        ({"approval_options": Snare()}, "approval_options that cannot be read (ZeroDivisionError): pass a plain list"),
        ({"context_injections": "text"}, "context_injections 'text': pass a list"),
        (
            {"action": "inject_context", "context_injections": Mirage()},
            "inject_context without text: pass context_injection='…' or context_injections=[…]",
        ),
        ({"context_injections": ["a"]}, "context_injections with an item of type str: pass ContextInjection(…)"),
        ({"context_injections": [{"role": "user"}]}, "an injection without text: pass content='…' with the text"),
        (
            {"context_injections": [{"content": "a", "rloe": "user"}]},
            "ContextInjection has no field 'rloe': did you mea",
        ),
        ({"risk": "hihg"}, "risk 'hihg': did you mean 'high'?"),
        ({"risk_reason": "why"}, "risk_reason without risk: name the risk it is for, one of low, medium, high"),
        ({"risk": "low", "risk_reason": "é" * 1_025}, "risk_reason of 2,050 bytes: say it in 2,048"),
    ],
)
def test_impossible_results(said: dict[str, Any], sentence: str) -> None:
    """An answer that cannot be carried out is refused, with a sentence that names the flaw and the remedy."""
    with pytest.raises(InvalidResult) as caught:
        unchecked(**said)
    assert str(caught.value).startswith(sentence)


@pytest.mark.rule("RES-2")
@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", [5, b"text", ["text"], Equal()], ids=lambda value: type(value).__name__)
def test_texts_are_text(field: str, value: object) -> None:
    """A text field takes a str and nothing else."""
    with pytest.raises(InvalidResult, match=rf"^{field} .*: pass a str$"):
        unchecked(**{field: value})


@pytest.mark.rule("RES-2")
@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("value", [1, 0, None, "False", Equal()], ids=["one", "zero", "None", "text", "equal"])
def test_flags_are_flags(field: str, value: object) -> None:
    """A flag takes True or False, and no value that merely counts as one."""
    with pytest.raises(InvalidResult, match=rf"^{field} .*: pass True or False$"):
        unchecked(**{field: value})


@pytest.mark.rule("RES-2")
@each("field", WORDS)
@each("value", ["", "CONTINUE", "x" * 10_000_000, None, 5, {}, Equal()])
def test_words_are_of_the_list(field: str, value: object) -> None:
    """A field with a list of words takes only those, and refuses an object equal to one in a short sentence."""
    if value is FIELD_TABLE[field]:
        return  # the default, None, is accepted
    with pytest.raises(InvalidResult, match=rf"^{field} (?s:.)*: (use one of|did you mean)") as caught:
        unchecked(**{field: value})
    assert len(str(caught.value)) < 150


@pytest.mark.rule("RES-2")
@pytest.mark.parametrize("field", WORDS)
def test_every_listed_word_is_taken(field: str) -> None:
    """Every word of the list is taken, also from a subclass of str such as a string enumeration."""
    for word in WORDS[field]:
        more = {"data": {}, "context_injection": "text"}
        assert getattr(unchecked(**{**more, field: word}), field) == word
        assert getattr(unchecked(**{**more, field: Word(word)}), field) == word


@pytest.mark.rule("RES-2")
@pytest.mark.parametrize("field", ["approved", "resaon", "hook_name", "extensions"])
def test_unknown_keyword(field: str) -> None:
    """A keyword that does not exist is refused, by the class and by its short forms."""
    for build in (unchecked, unchecked.proceed, unchecked.deny):
        with pytest.raises(TypeError, match=field):
            build(**{field: True})
    with pytest.raises(TypeError):
        unchecked("deny")
    text: Any = ContextInjection
    for build in (text, lambda: text("x"), lambda: text(content="x", approved=True)):
        with pytest.raises(TypeError):
            build()


@pytest.mark.rule("RES-2")
def test_what_is_possible() -> None:
    """A denial without reason, data that changes nothing, a timeout of zero and a very long one are valid."""
    assert HookResult(action="deny").reason is None
    assert HookResult(action="modify", data={}).data == {}
    assert HookResult(approval_timeout=0).approval_timeout == 0
    assert HookResult(approval_timeout=LONGEST).approval_timeout == LONGEST
    assert HookResult(context_injection="").injections == ()
    assert HookResult(risk="low", risk_reason="é" * 1_024).risk == "low"
    assert HookResult(action="inject_context", context_injections=[ContextInjection(content="x")]).injects


@pytest.mark.rule("RES-2")
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"content": ""}, "an injection without text: pass content='…'"),
        ({"content": 5}, "content 5: pass a str"),
        ({"content": "x", "role": "tool"}, "role 'tool': use one of system, user, assistant"),
        ({"content": "x", "role": []}, "role of type list: use one of system, user, assistant"),
        ({"content": "x", "ephemeral": 1}, "ephemeral 1: pass True or False"),
        ({"content": "x", "append_to_last_tool_result": None}, "append_to_last_tool_result of type NoneType: pass Tru"),
        ({"content": "x", "hook_name": 5}, "hook_name 5: pass a str"),
        ({"content": "x", "event": None}, "event of type NoneType: pass a str"),
    ],
    ids=count(),
)
def test_impossible_injections(said: dict[str, Any], sentence: str) -> None:
    """An injection is checked like a result."""
    with pytest.raises(InvalidResult) as caught:
        ContextInjection(**said)
    assert str(caught.value).startswith(sentence)


@pytest.mark.rule("RES-2")
@given(results())
def test_frozen(result: HookResult) -> None:
    """No field of a result can be assigned or deleted, and a changed copy is checked again."""
    for name in FIELD_TABLE:
        with pytest.raises((AttributeError, TypeError)):
            setattr(result, name, getattr(result, name))
        with pytest.raises((AttributeError, TypeError)):
            delattr(result, name)
    with pytest.raises(InvalidResult):
        msgspec.structs.replace(result, approval_timeout=-1.0)


@pytest.mark.rule("RES-2")
def test_what_was_said_stays_said() -> None:
    """Changing the dict or the lists that a result was made of changes nothing in the result."""
    data, options, items = {"a": 1}, ["Allow", "Deny"], [ContextInjection(content="x")]
    result = HookResult(data=data, approval_options=options, context_injections=items)
    data["b"], options[:], items[:] = 2, [], []
    assert result.data == {"a": 1}
    assert result.approval_options == ("Allow", "Deny")
    assert [item.content for item in result.context_injections] == ["x"]


@pytest.mark.rule("RES-2")
def test_data_is_a_plain_dict() -> None:
    """A result keeps its data as a dict of its own, from any mapping."""
    assert type(HookResult(data=DataView({"a": 1})).data) is dict
    assert type(HookResult(data=Chained({"a": 1})).data) is dict


class Chained(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.items_ = items

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


@given(results())
def test_copies_are_equal(result: HookResult) -> None:
    """A result survives copying and pickling."""
    assert copy.copy(result) == result
    assert copy.deepcopy(result) == result
    assert pickle.loads(pickle.dumps(result)) == result


# -- short forms -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-3")
@pytest.mark.parametrize(
    ("short", "long"),
    [
        (HookResult.proceed(), HookResult()),
        (
            HookResult.proceed(user_message="hi", user_message_level="error"),
            HookResult(user_message="hi", user_message_level="error"),
        ),
        (HookResult.deny(), HookResult(action="deny")),
        (HookResult.deny("no", user_message="hi"), HookResult(action="deny", reason="no", user_message="hi")),
        (HookResult.modify({"a": 1}), HookResult(action="modify", data={"a": 1})),
        (
            HookResult.modify({"a": 1}, reason="r", suppress_output=True),
            HookResult(action="modify", data={"a": 1}, reason="r", suppress_output=True),
        ),
        (HookResult.inject("x"), HookResult(action="inject_context", context_injection="x")),
        (
            HookResult.inject("x", role="user", ephemeral=True),
            HookResult(action="inject_context", context_injection="x", context_injection_role="user", ephemeral=True),
        ),
        (HookResult.ask(), HookResult(action="ask_user")),
        (HookResult.ask("q?"), HookResult(action="ask_user", approval_prompt="q?")),
        (
            HookResult.ask("q?", risk="high", risk_reason="r"),
            HookResult(action="ask_user", approval_prompt="q?", risk="high", risk_reason="r"),
        ),
        (HookResult.proceed(risk="low"), HookResult(risk="low")),
        (
            HookResult.ask("q?", options=["A"], timeout=5, default="allow", scope="action", approval_key="k"),
            HookResult(
                action="ask_user",
                approval_prompt="q?",
                approval_options=["A"],
                approval_timeout=5,
                approval_default="allow",
                approval_scope="action",
                approval_key="k",
            ),
        ),
    ],
)
def test_short_forms(short: HookResult, long: HookResult) -> None:
    """Each short form equals its long form."""
    assert short == long


@pytest.mark.rule("RES-3")
def test_a_misspelt_keyword_of_a_short_form() -> None:
    """A type checker refuses a misspelt keyword of every short form, as does calling it."""
    # Strict mypy reports an ignored error that is none, so each of these lines is proved to be one.
    with pytest.raises(TypeError):
        HookResult.proceed(user_mesage="hi")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        HookResult.deny("no", reasons="hi")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        HookResult.modify({}, risk_raeson="hi")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        HookResult.inject("x", ephemerl=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        HookResult.ask("q?", riks="high")  # type: ignore[call-arg]
    with pytest.raises(InvalidResult):
        HookResult.ask("q?", risk="hihg")  # type: ignore[arg-type]


@pytest.mark.rule("RES-3")
def test_saying_nothing_costs_nothing() -> None:
    """A plain continue is one shared result."""
    assert HookResult.proceed() is CONTINUE
    assert as_result(None) is CONTINUE


@pytest.mark.rule("RES-3")
@given(results())
def test_result_is_taken_as_it_is(result: HookResult) -> None:
    """A result comes back itself; a mapping of its fields comes back equal."""
    assert as_result(result) is result
    assert as_result(fields(result)) == result
    assert as_result(msgspec.to_builtins(result)) == result
    assert as_result(Chained(fields(result))) == result


@pytest.mark.rule("RES-3")
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({}, "a hook returned an empty mapping: return None to continue, or name an action"),
        ({"approved": True}, "HookResult has no field 'approved': use one of action, data, reason, "),
        ({"action": "continue", "approved": True}, "HookResult has no field 'approved': use one of action, "),
        ({"resaon": "no"}, "HookResult has no field 'resaon': did you mean 'reason'?"),
        ({5: "no"}, "HookResult has no field 5: use one of action, "),
        ({b"action": "deny"}, "HookResult has no field of type bytes: use one of action, "),
        ({"action": "block"}, "action 'block': use one of continue, "),
        ({"action": "modify"}, "modify without data: "),
        (Trap(), "a mapping that cannot be read (ZeroDivisionError): pass a plain dict"),
        (True, "a hook returned bool: return HookResult(…), None, or a mapping of its fields"),
        (False, "a hook returned bool: "),
        (0, "a hook returned int: "),
        ("continue", "a hook returned str: "),
        ("x" * 10_000_000, "a hook returned str: "),
        (b"deny", "a hook returned bytes: "),
        ([], "a hook returned list: "),
        ([("action", "deny")], "a hook returned list: "),
        (HookResult, "a hook returned "),
        (Equal(), "a hook returned Equal: "),
    ],
    ids=count(),
)
def test_anything_else_is_no_answer(answer: object, sentence: str) -> None:
    """An answer that is neither a result, nor None, nor a mapping with fields is refused, and never guessed at."""
    with pytest.raises(InvalidResult) as caught:
        as_result(answer)
    assert str(caught.value).startswith(sentence)
    assert len(str(caught.value)) < 500


@pytest.mark.rule("RES-3")
def test_injections_as_mappings() -> None:
    """Injections may be mappings too, as they are in JSON."""
    result = as_result({"action": "inject_context", "context_injections": [{"content": "x", "role": "user"}]})
    assert result.injections == (ContextInjection(content="x", role="user"),)


@pytest.mark.rule("RES-2", "RES-3")
def test_subclasses() -> None:
    """A subclass is read by its fields, and checked even if it switched its checks off."""

    class Lenient(HookResult, frozen=True, kw_only=True):
        """A result that accepts anything."""

        severity: int = 0

        def __post_init__(self) -> None:
            """Check nothing."""

    class Loose(ContextInjection, frozen=True, kw_only=True):
        """An injection that accepts anything."""

        def __post_init__(self) -> None:
            """Check nothing."""

    assert as_result(Lenient(action="deny", reason="no", severity=3)) == HookResult.deny("no")
    assert type(as_result(Lenient())) is HookResult
    with pytest.raises(InvalidResult):
        as_result(Lenient(action="nonsense"))  # type: ignore[arg-type]
    items = HookResult(context_injections=[Loose(content="x", hook_name="h")]).context_injections
    assert items == (ContextInjection(content="x", hook_name="h"),)
    with pytest.raises(InvalidResult):
        HookResult(context_injections=[Loose(content="")])


# -- the upstream kernel's own objects ---------------------------------------------------------------------------------


@pytest.mark.rule("RES-1", "RES-3")
@given(injections)
def test_upstream_injections(item: ContextInjection) -> None:
    """Upstream injections are taken in ours and in upstream results alike."""
    theirs: Any = upstream.ContextInjection(**fields(item))
    assert HookResult(context_injections=[theirs]).context_injections == (item,)
    answer = upstream.HookResult(action="inject_context", context_injections=[theirs])
    assert as_result(answer).injections == (item,)


@pytest.mark.rule("RES-2", "RES-3")
@pytest.mark.parametrize(
    "said",
    [
        {"action": "modify"},
        {"action": "inject_context"},
        {"approval_timeout": math.nan},
        {"approval_timeout": -5},
        {"approval_timeout": math.inf},
        {"approval_options": []},
        {"context_injections": [{"content": ""}]},
    ],
    ids=count(),
)
def test_upstream_results_are_checked(said: dict[str, Any]) -> None:
    """An upstream result that cannot be carried out is refused when it arrives."""
    with pytest.raises(InvalidResult):
        as_result(upstream.HookResult(**said))


@pytest.mark.rule("RES-2", "RES-3")
def test_upstream_results_may_have_been_changed() -> None:
    """An upstream result, whose fields can be assigned, is read as it is when it arrives."""
    answer: Any = upstream.HookResult()
    answer.action = "deny"
    assert as_result(answer).action == "deny"
    answer.action = "nonsense"
    with pytest.raises(InvalidResult, match="'nonsense'"):
        as_result(answer)


@pytest.mark.rule("RES-3")
def test_upstream_subclass_and_older_version() -> None:
    """A subclass is read, too, and a field that a version lacks has its default."""

    class Stricter(upstream.HookResult):  # type: ignore[misc]
        """A hook author's own result."""

        severity: int = 0

    assert as_result(Stricter(action="deny", reason="no", severity=3)) == HookResult.deny("no")
    older = type("HookResult", (), {"__module__": "amplifier_core.models", "action": "deny", "reason": "no"})
    assert as_result(older()) == HookResult.deny("no")
    stranger = type("HookResult", (), {"__module__": "elsewhere", "action": "deny"})
    with pytest.raises(InvalidResult):
        as_result(stranger())


# -- outcomes ----------------------------------------------------------------------------------------------------------


DATA = {"tool_name": "Write"}


def outcome(*results: HookResult) -> Outcome:
    """Merge the answers of the hooks a, b, and c."""
    answers = [Answer(hook_name=name, result=result) for name, result in zip("abc", results, strict=False)]
    return merge("tool:pre", DATA, answers)


@pytest.mark.rule("RES-4")
def test_reads_like_a_result() -> None:
    """Every field of a result can be read; without answers it has its default, but for the data."""
    silent = Outcome("tool:pre", DATA)
    fields = set(HookResult.__struct_fields__)
    assert {name: getattr(silent, name) for name in fields} == {
        **{name: getattr(HookResult(), name) for name in fields},
        "data": DATA,
    }


@pytest.mark.rule("RES-4")
def test_outcome_is_frozen() -> None:
    """No field of an outcome, an answer, a question or a message can be assigned."""
    whole = outcome(HookResult.ask("sure?", user_message="hi", context_injection="text"))
    for record in (whole, *whole.answers, *whole.asks, *whole.messages, *whole.injections):
        for name in record.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(record, name, None)


@pytest.mark.rule("RES-4")
def test_texts_together() -> None:
    """The injections read as one text, with a blank line between them and the first one's role."""
    whole = outcome(HookResult.inject("one", role="user"), HookResult.deny("no"), HookResult.inject("two"))
    assert whole.context_injection == "one\n\ntwo"
    assert whole.context_injection_role == "user"
    assert whole.context_injections == whole.injections


@pytest.mark.rule("RES-4")
@pytest.mark.parametrize("flag", ["ephemeral", "append_to_last_tool_result"])
@pytest.mark.parametrize(
    ("flags", "together"), [((True,), True), ((False,), False), ((True, True), True), ((True, False), False)]
)
def test_flags_hold_for_all_texts(flag: str, flags: tuple[bool, ...], together: bool) -> None:
    """A flag is reported for all text together only if each text has it."""
    said: list[dict[str, Any]] = [{flag: value} for value in flags]
    assert getattr(outcome(*(HookResult.inject("text", **fields) for fields in said)), flag) is together


@pytest.mark.rule("RES-4")
def test_questions_together() -> None:
    """Several questions read as one: all prompts, common options, shortest time, stricter default and scope."""
    whole = outcome(
        HookResult.ask(
            "one?", options=["Allow always", "Allow", "Deny"], timeout=60, default="allow", approval_key="k"
        ),
        HookResult.ask("two?", options=["Deny", "Allow"], timeout=5, scope="action", approval_key="k"),
        HookResult.ask("three?", default="allow", approval_key="k"),
    )
    assert whole.approval_prompt == "one?\ntwo?\nthree?"
    assert whole.approval_options == ("Allow", "Deny")
    assert whole.approval_timeout == 5
    assert whole.approval_default == "deny"
    assert whole.approval_scope == "action"
    assert whole.approval_key == "k"


@pytest.mark.rule("RES-4")
def test_questions_that_agree() -> None:
    """A default of allow and the wider scope hold if all questions have them; keys that differ are no key."""
    whole = outcome(
        HookResult.ask("one?", default="allow", approval_key="k"), HookResult.ask("two?", default="allow", timeout=900)
    )
    assert whole.approval_default == "allow"
    assert whole.approval_scope == "prompt"
    assert whole.approval_key is None
    assert whole.approval_timeout == 300


@pytest.mark.rule("RES-4")
def test_messages_together() -> None:
    """The messages read as lines, with the first one's source and the most serious level."""
    whole = outcome(
        HookResult.proceed(user_message="one", user_message_source="Lint"),
        HookResult.deny(user_message="two", user_message_level="error"),
        HookResult.proceed(user_message="three", user_message_level="warning"),
    )
    assert whole.user_message == "one\ntwo\nthree"
    assert whole.user_message_source == "Lint"
    assert whole.user_message_level == "error"
    mild = outcome(
        HookResult.proceed(user_message="a", user_message_level="warning"), HookResult.proceed(user_message="b")
    )
    assert mild.user_message_level == "warning"
    assert mild.user_message_source == "a"


@pytest.mark.rule("RES-4")
def test_output_is_suppressed_for_all() -> None:
    """One hook that hides its output is enough."""
    assert outcome(HookResult.deny(), HookResult.modify({}, suppress_output=True)).suppress_output
    assert not outcome(HookResult.deny()).suppress_output


# -- chains ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RES-8")
def test_reads_like_a_chain() -> None:
    """An outcome has chains' names for event, records, abortion, reason, duration, success and count."""
    said = Answer(hook_name="b", result=HookResult.deny("no", data={"a": 1}), duration_ms=2.0)
    whole = merge("tool:pre", DATA, [said], ran=("a", "b"), duration_ms=3.0)
    assert whole.event_type == "tool:pre"
    assert (whole.aborted, whole.abort_reason) == (True, "no")
    assert whole.total_duration_ms == 3.0
    assert whole.all_succeeded
    assert whole.hook_count == 2
    records: Any = [(r.hook_name, r.success, r.data, r.error, r.duration_ms) for r in whole.hook_results]
    assert records == [("a", True, None, None, None), ("b", True, {"a": 1}, None, 2.0)]


@pytest.mark.rule("RES-8")
def test_not_aborted() -> None:
    """An outcome that is not denied has no reason for an abortion, also if a reason was given."""
    whole = outcome(HookResult.modify({}, reason="tidied"))
    assert (whole.aborted, whole.abort_reason, whole.reason) == (False, None, "tidied")


@pytest.mark.rule("RES-8")
def test_nobody_spoke() -> None:
    """Hooks that stayed silent have a record each."""
    whole = Outcome("tool:pre", DATA, ran=("a", "b"))
    assert whole.hook_results == (Answer(hook_name="a"), Answer(hook_name="b"))
    assert whole.hook_count == 2
    assert whole.all_succeeded


@pytest.mark.rule("RES-8", "DSP-2")
def test_second_looks_come_last() -> None:
    """The records of second looks stand behind all others, which have the order of the hooks."""
    late, early = Answer(hook_name="c", status="error", error="it broke"), Answer(hook_name="a")
    again = Answer(hook_name="a", result=HookResult.deny("no"), recheck=True)
    stranger = Answer(hook_name="z")
    whole = merge("tool:pre", DATA, [again, stranger, late, early], ran=("a", "b", "c"))
    assert whole.hook_results == (early, Answer(hook_name="b"), late, stranger, again)
    assert not whole.all_succeeded
    assert whole.failures == (late,)


@pytest.mark.rule("RES-8")
@given(chains())
def test_nothing_after_a_denial(given: tuple[tuple[str, ...], list[Answer]]) -> None:
    """If the first round was denied, its last record is the denial."""
    ran, said = given
    whole = merge("tool:pre", DATA, said, ran=ran)
    first = [record for record in whole.hook_results if not record.recheck]
    if whole.denied and not any(answer.recheck for answer in said):
        assert first[-1].action == "deny"
        assert first[-1].hook_name == whole.denied_by


@pytest.mark.rule("RES-4", "DSP-4")
def test_a_failure_is_not_an_answer() -> None:
    """A failure's record has its error and no data, and denies only if the hook gates."""
    failed = Answer(hook_name="a", status="timeout", error="too slow", result=HookResult.modify({"a": 1}))
    assert (failed.success, failed.error, failed.data, failed.action) == (False, "too slow", None, "continue")
    gate = Answer(hook_name="a", status="timeout", error="too slow", denies=True)
    assert (gate.success, gate.action) == (False, "deny")
    said = Answer(hook_name="a", result=HookResult.modify({"a": 1}))
    assert (said.success, said.data, said.action) == (True, {"a": 1}, "modify")
