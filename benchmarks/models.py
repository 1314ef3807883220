"""The cost of making one answer, beside the same answer as a dataclass, an attrs class and a pydantic model.

All candidates have the fields of `HookResult`. Where it says *same checks*, the very function that checks a
HookResult checks them; attrs and pydantic also run with checks written their own way. The second table says which
impossible answers each of them refuses, since a class that accepts more is quick for the wrong reason.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import math
from timeit import Timer
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import attrs
import msgspec
import pydantic
from attrs import validators

from amplifier_hooks import result as home
from amplifier_hooks.result import LONGEST, HookResult
from benchmarks.options import parser
from benchmarks.rounds import QUICK, THOROUGH, Timed, measure
from benchmarks.table import Report, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIELDS: Final = msgspec.structs.fields(HookResult)

CASES: Final = {
    "HookResult()": "()",
    "deny": "(action='deny', reason='no')",
    "modify": "(action='modify', data={'a': 1})",
    "inject": "(action='inject_context', context_injection='x')",
    "ask": "(action='ask_user', approval_prompt='sure?')",
}
SHORT: Final = {
    "HookResult()": ".proceed()",
    "deny": ".deny('no')",
    "modify": ".modify({'a': 1})",
    "inject": ".inject('x')",
    "ask": ".ask('sure?')",
}

IMPOSSIBLE: Final[Sequence[dict[str, Any]]] = (
    {"action": "nonsense"},
    {"action": ["deny"]},
    {"action": "modify"},
    {"action": "inject_context"},
    {"approval_timeout": -1.0},
    {"approval_timeout": math.nan},
    {"approval_timeout": math.inf},
    {"approval_timeout": True},
    {"approval_timeout": "12"},
    {"reason": 5},
    {"ephemeral": 1},
    {"data": [1]},
    {"approval_options": "Allow"},
    {"approval_options": []},
    {"context_injections": ["text"]},
    {"approved": True},
)


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and keep what was printed if wanted."""
    chosen = parser("models", __doc__).parse_args(arguments)
    report = Report("models", ("msgspec", "attrs", "pydantic"))
    kinds = candidates()

    rows: dict[str, list[str]] = {name: [] for name in (*kinds, "HookResult, short form")}
    for case, call in CASES.items():
        subjects = {name: making(f"kind{call}", kind) for name, kind in kinds.items()}
        subjects["HookResult, short form"] = making(f"kind{SHORT[case]}", HookResult)
        samples = asyncio.run(measure(subjects, QUICK if chosen.quick else THOROUGH))
        for name, own in samples.items():
            rows[name].append(f"{number(own.ratio(samples['HookResult']))} ({own.usual * 1e3:,.0f} ns)")
    report.text("Times what a `HookResult` takes, and the median; the same call for all, but for the short forms.")
    report.table(["", *CASES], [[name, *cells] for name, cells in rows.items()])
    report.text(f"Refused of {len(IMPOSSIBLE)} impossible answers, and assignment of fields.")
    report.table(
        ["", "refused", "frozen"],
        [
            [name, str(sum(refuses(kind, said) for said in IMPOSSIBLE)), "yes" if frozen(kind) else "**no**"]
            for name, kind in kinds.items()
        ],
    )
    report.finish(write=chosen.write)


def candidates() -> dict[str, Callable[..., Any]]:
    """The ways to write the class, ours first."""
    return {
        "HookResult": HookResult,
        "msgspec, unchecked": msgspec.defstruct(
            "Unchecked", [(field.name, field.type, field.default) for field in FIELDS], frozen=True, kw_only=True
        ),
        "dataclass(slots), same checks": as_dataclass(same_checks(), frozen=False),
        "dataclass(slots, frozen), same checks": as_dataclass(same_checks(), frozen=True),
        "attrs.frozen, same checks": attrs.make_class(
            "Attrs",
            {field.name: attrs.field(default=field.default) for field in FIELDS},
            class_body={"__attrs_post_init__": same_checks()},
            **ATTRS,
        ),
        "attrs.frozen, validators": attrs.make_class(
            "Validated",
            {field.name: attrs.field(default=field.default, validator=validator(field)) for field in FIELDS},
            class_body={"__attrs_post_init__": whole},
            **ATTRS,
        ),
        "pydantic, frozen": pydantic.create_model(
            "Pydantic",
            __config__=pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True),
            __validators__={"whole": pydantic.model_validator(mode="after")(whole)},
            **{field.name: (constrained(field), field.default) for field in FIELDS},  # type: ignore[call-overload]
        ),
    }


ATTRS: Final[dict[str, Any]] = {"frozen": True, "slots": True, "kw_only": True}


def same_checks() -> Callable[[Any], None]:
    """The function that checks a HookResult, with the assignment that works on other frozen classes too.

    Each class gets one of its own, because the interpreter tunes code to the class it first meets.
    """
    function: Any = HookResult.__post_init__
    return FunctionType(function.__code__.replace(), {**vars(home), "force_setattr": object.__setattr__})


def as_dataclass(checks: Callable[[Any], None], *, frozen: bool) -> type:
    """The fields as a dataclass."""
    return dataclasses.make_dataclass(
        "Dataclass",
        [(field.name, field.type, dataclasses.field(default=field.default)) for field in FIELDS],
        namespace={"__post_init__": checks},
        frozen=frozen,
        slots=True,
        kw_only=True,
    )


def whole(said: Any) -> Any:
    """The rules for several fields together, as attrs and pydantic have them checked."""
    if said.action == "modify" and said.data is None:
        raise ValueError("modify without data")
    if said.action == "inject_context" and not (said.context_injection or said.context_injections):
        raise ValueError("inject_context without text")
    return said


def validator(field: msgspec.structs.FieldInfo) -> Any:
    """Return the validator of attrs for a field of this type."""
    if field.name == "approval_timeout":
        return validators.and_(
            validators.not_(validators.instance_of(bool)),
            validators.instance_of((int, float)),
            validators.ge(0),
            validators.le(LONGEST),
        )
    if get_origin(field.type) is Literal:
        return validators.in_(get_args(field.type))
    if field.name == "context_injections":
        return validators.deep_iterable(validators.instance_of(home.ContextInjection))
    if field.name == "approval_options":
        labels = validators.deep_iterable(validators.instance_of(str), validators.instance_of((list, tuple)))
        return validators.optional(validators.and_(labels, validators.min_len(1)))
    if field.type is bool:
        return validators.instance_of(bool)
    return validators.optional(validators.instance_of(dict if field.name == "data" else str))


def constrained(field: msgspec.structs.FieldInfo) -> Any:
    """Return the constraint of pydantic for a field of this type."""
    if field.name == "approval_timeout":
        return Annotated[float, pydantic.Field(ge=0, le=LONGEST, allow_inf_nan=False)]
    if field.name == "data":
        return dict[str, Any] | None  # a Mapping would take it a hundred times as long
    if field.name == "approval_options":
        return Annotated[list[str], pydantic.Field(min_length=1)] | None
    return field.type


def making(call: str, kind: Callable[..., Any]) -> Timed:
    """The call, as it stands; the collector stays on, which timeit would turn off."""
    timer = Timer(call, "gc.enable()", globals={"kind": kind, "gc": gc})

    async def timed(number: int) -> float:
        return timer.timeit(number)

    return timed


def refuses(kind: Callable[..., Any], said: dict[str, Any]) -> bool:
    """Return True if the class refuses this answer."""
    try:
        kind(**said)
    except (TypeError, ValueError):
        return True
    return False


def frozen(kind: Callable[..., Any]) -> bool:
    """Return True if the fields of a made answer cannot be assigned."""
    answer = kind(action="deny")
    try:
        answer.action = "continue"
    except (AttributeError, ValueError):
        return True
    return False
