import ast
import copy
import inspect
import pickle
from collections.abc import Callable
from itertools import count

import pytest

from amplifier_hooks import errors
from amplifier_hooks.errors import (
    ApprovalTimeout,
    EmitTooDeep,
    HookAbortError,
    HookError,
    HookRefused,
    HookUnavailable,
    HookUsageError,
    InjectionTooLarge,
    InputNotFreezable,
    InvalidCollaborator,
    InvalidLimit,
    InvalidPayload,
    InvalidRegistration,
    InvalidResult,
    MissingExtra,
    MisspeltEvent,
    OperationRanTwice,
    PrivilegeRequired,
    TooManyHooks,
    UnknownEvent,
)

SENTENCES: list[tuple[HookError, str]] = [
    (
        UnknownEvent("deploy:go"),
        "unknown event 'deploy:go': declare it with registry.declare('deploy:go') before it is used",
    ),
    (
        UnknownEvent("tool:pr", "tool:pre"),
        (
            "unknown event 'tool:pr': did you mean 'tool:pre'? If not, declare it with registry.declare('tool:pr') "
            "before it is used"
        ),
    ),
    (
        UnknownEvent("tool:pr", "tool:pre", hook="stop", remedy="pass own_event=True"),
        (
            "unknown event 'tool:pr', so the hook 'stop' would never run: did you mean 'tool:pre'? "
            "If not, pass own_event=True"
        ),
    ),
    (MisspeltEvent("LLM:POST", "llm:post"), "unknown event 'LLM:POST': write it 'llm:post'"),
    (
        OperationRanTwice("retry"),
        "around hook 'retry' called call_next twice; keep the first call's result instead",
    ),
    (
        PrivilegeRequired("acme", "llm:pre", "modify_prompts"),
        "Plugin acme lacks modify_prompts permission (needed for llm:pre)",
    ),
    (
        TooManyHooks("tool:pre", 10),
        "tool:pre already has 10 hooks from definitions; remove one or raise max_per_event",
    ),
    (
        EmitTooDeep("tool:pre", 4),
        "tool:pre was emitted by a hook 4 emits deep; break the cycle or raise max_depth of the registry",
    ),
    (HookAbortError("out of hours", "clock"), "out of hours"),
    (InputNotFreezable("NaN at $.x"), "the input is not plain JSON: NaN at $.x"),
    (
        InjectionTooLarge(20_000, 10_240, "lint"),
        "the injection of hook 'lint' has 20,000 bytes, which exceeds the limit of 10,240; shorten it",
    ),
    (InjectionTooLarge(11, 10), "the injection has 11 bytes, which exceeds the limit of 10; shorten it"),
    (InvalidLimit("per_turn", -1, "a whole number, 0 or more"), "per_turn is -1; pass a whole number, 0 or more"),
    (InvalidResult("modify without data"), "modify without data"),
    (ApprovalTimeout("no answer came"), "no answer came"),
    (
        MissingExtra("PostgreSQL", "postgres"),
        "PostgreSQL needs the extra 'postgres': pip install 'amplifier-hooks[postgres]'",
    ),
    (
        MissingExtra("hook 'metrics'", "otel", "set opentelemetry: false"),
        "hook 'metrics' needs the extra 'otel': pip install 'amplifier-hooks[otel]'; or set opentelemetry: false",
    ),
]
everyone = pytest.mark.parametrize(("error", "sentence"), SENTENCES, ids=count())


@everyone
def test_sentences(error: HookError, sentence: str) -> None:
    """Each error says what happened, where, and how to put it right."""
    assert str(error) == sentence


@everyone
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
    ids=["copy", "deep", "pickle"],
)
def test_copies_keep_sentence_and_facts(
    copied: Callable[[HookError], HookError], error: HookError, sentence: str
) -> None:
    """An error that was copied, or came from another process, has its type, its sentence and its facts."""
    error.add_note("seen in passing")
    again = copied(error)
    assert type(again) is type(error)
    assert str(again) == sentence
    assert vars(again) == vars(error)


def test_facts() -> None:
    """The facts of each error's sentence can be read from its fields."""
    unknown = UnknownEvent("a", "b", hook="h", remedy="r")
    assert (unknown.name, unknown.likely, unknown.hook, unknown.remedy) == ("a", "b", "h", "r")
    assert OperationRanTwice("h").hook == "h"
    limit = InvalidLimit("n", 1, "w")
    assert (limit.name, limit.value, limit.requirement) == ("n", 1, "w")
    privilege = PrivilegeRequired("p", "at", "may")
    assert (privilege.plugin, privilege.point, privilege.permission) == ("p", "at", "may")
    for counted in (TooManyHooks("e", 3), EmitTooDeep("e", 3)):
        assert (counted.event, counted.limit) == ("e", 3)
    abort = HookAbortError("r", "h")
    assert (abort.reason, abort.hook) == ("r", "h")
    assert HookAbortError("r").hook == ""
    assert InputNotFreezable("p").problem == "p"
    large = InjectionTooLarge(2, 1, "h")
    assert (large.size, large.limit, large.hook) == (2, 1, "h")


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (InvalidResult, (HookUsageError, ValueError)),
        (InvalidRegistration, (HookUsageError, ValueError)),
        (InvalidLimit, (HookUsageError, ValueError)),
        (UnknownEvent, (HookUsageError, ValueError)),
        (MisspeltEvent, (UnknownEvent,)),
        (InvalidCollaborator, (HookUsageError, TypeError)),
        (InvalidPayload, (HookUsageError, TypeError)),
        (OperationRanTwice, (HookUsageError,)),
        (PrivilegeRequired, (HookRefused, PermissionError)),
        (TooManyHooks, (HookRefused,)),
        (EmitTooDeep, (HookRefused, RecursionError)),
        (HookUnavailable, (HookError,)),
        (HookAbortError, (HookError,)),
        (InputNotFreezable, (HookError, ValueError)),
        (InjectionTooLarge, (HookError, ValueError)),
        (ApprovalTimeout, (HookError, TimeoutError)),
    ],
)
def test_families(kind: type[HookError], bases: tuple[type[BaseException], ...]) -> None:
    """Each error is caught by its family and by the built-in error that it specialises."""
    assert kind.__bases__ == bases


def test_the_tree_shows_every_error() -> None:
    """The tree at the top of the module names every class of the module, with its built-in base, and no other."""
    tree = inspect.getdoc(errors) or ""
    drawn = {line.strip("│├└─ ").split()[0]: line for line in tree.split("```")[1].splitlines() if line.strip()}
    defined = [node.name for node in ast.parse(inspect.getsource(errors)).body if isinstance(node, ast.ClassDef)]
    assert set(drawn) == set(defined)
    for name, line in drawn.items():
        built_in = [base.__name__ for base in getattr(errors, name).__bases__ if base.__module__ == "builtins"]
        assert built_in == ["Exception"] or all(f"({base})" in line for base in built_in)


@pytest.mark.rule("CLI-3")
@pytest.mark.parametrize(
    ("module", "extra"),
    [("fastapi", "server"), ("opentelemetry.metrics", "otel"), ("amplifier_hooks.nothing", None), (None, None)],
)
def test_extra_behind_an_import(module: str | None, extra: str | None) -> None:
    """A failed import is traced to the extra that its module comes with, if it comes with one."""
    missing = MissingExtra.from_import(ModuleNotFoundError(name=module), "it")
    assert (missing and missing.extra) == extra
