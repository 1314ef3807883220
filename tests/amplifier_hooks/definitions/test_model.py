from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from amplifier_hooks.definitions import DefinitionSettings, HookDefinition
from amplifier_hooks.definitions.model import BANDS, HIDDEN, HookChanges, NewHook, band_of, likeness, new_hook_id
from amplifier_hooks.errors import SettingsError

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LEAST: dict[str, Any] = {"name": "lint", "event_type": "tool:post", "handler_ref": "my.hooks:lint"}


def made(**said: Any) -> HookDefinition:
    """Make a definition, of which some is said."""
    return HookDefinition(**{**LEAST, **said})


@pytest.mark.rule("DEF-1")
def test_a_definition_has_these_fields_and_defaults() -> None:
    """Fields that a definition leaves out have the defaults of the rule, and its dates are UTC."""
    definition = made(created_at=datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert definition.model_dump(exclude={"hook_id"}) == {
        "name": "lint",
        "description": "",
        "event_type": "tool:post",
        "priority": 100,
        "handler_ref": "my.hooks:lint",
        "timeout_ms": None,
        "enabled": True,
        "tenant_id": "",
        "config": {},
        "fail_mode": None,
        "tags": [],
        "matcher": None,
        "risk": None,
        "risk_reason": "",
        "report_only": False,
        "created_at": NOON,
        "updated_at": NOON,
    }
    assert definition.created_at.utcoffset() == timedelta(0)
    assert HookDefinition.model_validate_json(definition.model_dump_json()) == definition
    with pytest.raises(ValidationError):
        definition.name = "other"


@pytest.mark.rule("DEF-1", "EVT-3")
@pytest.mark.parametrize(
    ("spelling", "event"),
    [
        ("PreToolUse", "tool:pre"),
        ("tool.execute.post", "tool:post"),
        ("onIntake", "prompt:submit"),
        ("on_run_start", "run:start"),
        ("tool:*", "tool:*"),
        ("*", "*"),
        ("acme:deploy", "acme:deploy"),
    ],
)
def test_the_event_is_kept_in_its_own_spelling(spelling: str, event: str) -> None:
    """An event may be spelt in any vocabulary; the definition has the canonical name."""
    assert made(event_type=spelling).event_type == event


@pytest.mark.rule("DEF-1")
@pytest.mark.fault("F-API-05")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", -1),
        ("priority", 1001),
        ("priority", "50"),
        ("priority", True),
        ("timeout_ms", 0),
        ("timeout_ms", 5001),
        ("timeout_ms", 1.5),
        ("enabled", "yes"),
        ("fail_mode", "maybe"),
        ("event_type", ""),
        ("event_type", "tool:pre\n"),
        ("event_type", "a:*:b"),
        ("handler_ref", "../evil.py"),
        ("handler_ref", "os; rm"),
        ("hook_id", "hook_XYZ"),
        ("hook_id", "hook_0123456789ab\n"),
        ("tenant_id", "a b"),
        ("tags", ["a b"]),
        ("tags", [f"t{number}" for number in range(21)]),
        ("config", {"a": float("nan")}),
        ("config", {"a": "x" * 70_000}),
        ("config", {"a": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}),
        ("config", [1]),
        ("config", {"a": "\ud800"}),
        ("config", {"\ud800": 1}),
        ("config", {"a": 10**5000}),
        ("matcher", "re:(((a{500}){500}){500})"),
        ("matcher", "re:" + "a" * 100_000),
        ("description", "a\u202eb"),
        ("description", "a\x00b"),
        ("matcher", "Write, Edit"),
        ("matcher", ""),
        ("matcher", []),
        ("risk", "hihg"),
        ("risk", ["high"]),
        ("risk_reason", "why, without a risk"),
        ("risk_reason", "a\u202eb"),
        ("risk_reason", "é" * 1_025),
        ("created_at", datetime(2026, 5, 1)),  # noqa: DTZ001  # which is the mistake
        ("tier", "built-in"),
        ("trusted", True),
    ],
)
def test_what_is_no_definition_is_refused(field: str, value: object) -> None:
    """A value of another type, out of its range or under an unknown key makes no definition."""
    with pytest.raises(ValidationError) as refused:
        made(**{field: value})
    assert field in str(refused.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.mark.rule("DEF-1")
@given(st.dictionaries(st.sampled_from(list(HookDefinition.model_fields)), anything))
def test_whatever_comes_is_a_definition_or_is_refused(said: dict[str, Any]) -> None:
    """Of any data at all a definition is made that can be kept and shown, or a mistake is named."""
    try:
        definition = HookDefinition.model_validate({**LEAST, **said})
    except ValidationError:
        return
    assert HookDefinition.model_validate_json(definition.model_dump_json()).digest == definition.digest
    assert definition.public_fields()


@pytest.mark.rule("DEF-1")
@pytest.mark.parametrize(("kind", "most"), [("command", 600_000), ("http", 600_000), ("agent", 3_600_000)])
def test_a_kind_elsewhere_may_take_longer(kind: str, most: int) -> None:
    """The five seconds are a python hook's; what runs elsewhere has more, and an end as well."""
    assert made(handler_ref=kind, timeout_ms=most).kind == kind
    with pytest.raises(ValidationError, match="at most"):
        made(handler_ref=kind, timeout_ms=most + 1)


@pytest.mark.fault("F-API-13")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "a\n",
        "a\x00b",
        "a\u202eb",
        "pаypal",
        "ａ",
        "x" * 101,
        "x" * 10_240,
        "../a",
        "a/b",
        "a\\b",
        "..",
        ".a",
        "a..b",
        *[" a", "a ", "a  b", "-a", "a-", "a:b", "a\u200bb", "ﬁle", "a%2fb", "a'b", "<b>", "hook#2"],
    ],
)
def test_a_name_is_plain(name: str) -> None:
    """A name with anything in it that hides, reorders, imitates or leads somewhere is refused."""
    with pytest.raises(ValidationError):
        made(name=name)


@pytest.mark.fault("F-API-13")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lint", "LINT"),
        ("lint", "l1nt"),
        ("Image", "lmage"),
        ("root", "r00t"),
        ("a-b", "a_b"),
        ("a b", "a.b"),
        ("modern", "modem"),
    ],
)
def test_names_that_look_alike_have_the_same_likeness(one: str, other: str) -> None:
    """Two names that can be confused have equal likenesses."""
    assert likeness(one) == likeness(other)
    assert likeness(one) != likeness(one + "2")


@pytest.mark.rule("DEF-1")
def test_every_priority_has_one_band() -> None:
    """The bands follow each other from 0 to 1000 without a gap, and those below 100 fail closed."""
    starts = [band.first for band in BANDS]
    assert starts == [0, *(band.last + 1 for band in BANDS[:-1])]
    assert BANDS[-1].last == 1000
    assert [band_of(place).name for place in (0, 49, 50, 99, 100, 199, 200, 300, 400, 500, 699, 700, 900, 1000)] == [
        "security", "security", "governance", "governance", "input", "input", "execution", "output", "application",
        "observability", "observability", "notification", "debug", "debug",
    ]  # fmt: skip
    assert all(band.fail_mode == ("closed" if band.last < 100 else "open") for band in BANDS)


@pytest.mark.rule("API-4")
def test_what_is_written_becomes_a_definition() -> None:
    """A new hook has neither id nor tenant nor dates; `to_definition` adds them."""
    new = NewHook(**LEAST)
    kept = new.to_definition(tenant_id="acme", hook_id="hook_0123456789ab", now=NOON)
    assert (kept.hook_id, kept.tenant_id, kept.created_at, kept.updated_at) == ("hook_0123456789ab", "acme", NOON, NOON)
    for field in ("hook_id", "tenant_id", "created_at", "updated_at"):
        with pytest.raises(ValidationError):
            NewHook(**LEAST, **{field: kept.model_dump()[field]})


@pytest.mark.rule("API-4")
def test_changes_touch_what_they_name() -> None:
    """A change sets the fields that it names, to null as well; all other fields stay as they were."""
    before = made(timeout_ms=100, matcher="Write", created_at=NOON)
    later = NOON + timedelta(hours=1)
    after = HookChanges(timeout_ms=None, priority=10).apply_to(before, now=later)
    assert (after.timeout_ms, after.priority, after.matcher, after.updated_at) == (None, 10, "Write", later)
    assert (after.hook_id, after.created_at) == (before.hook_id, NOON)
    risky = HookChanges(risk="high", risk_reason="it leaves").apply_to(before, now=later)
    assert HookChanges(risk=None, risk_reason="").apply_to(risky, now=later).risk is None
    with pytest.raises(ValidationError):
        HookChanges(risk=None).apply_to(risky, now=later)
    with pytest.raises(ValidationError):
        HookChanges(priority=2000).apply_to(before, now=later)
    with pytest.raises(ValidationError):
        HookChanges(name=None).apply_to(before, now=later)
    with pytest.raises(ValidationError):
        HookChanges.model_validate({"tenant_id": "other"})


@pytest.mark.rule("DEF-1")
@given(
    st.fixed_dictionaries(
        {
            "priority": st.integers(0, 1000),
            "enabled": st.booleans(),
            "config": st.dictionaries(st.text(), st.integers()),
        }
    ),
    st.fixed_dictionaries(
        {
            "priority": st.integers(0, 1000),
            "enabled": st.booleans(),
            "config": st.dictionaries(st.text(), st.integers()),
        }
    ),
)
def test_a_digest_stands_for_the_definition(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Equal definitions have the same digest whenever they were made, different ones have different ones."""
    first, second = made(hook_id="hook_0123456789ab", **one), made(hook_id="hook_0123456789ab", **other)
    assert (first.digest == second.digest) == (one == other)


@pytest.mark.fault("F-API-08")
def test_secrets_are_not_shown() -> None:
    """A value that is secret by its name or place is hidden, and keeps its value when the hidden form comes back."""
    config = {
        "url": "https://example.com/hook?key=1234",
        "secret": ["whsec_abc", "whsec_def"],
        "secret_env": "ACME_SECRET",
        "headers": {"X-Team": "abc"},
        "env": {"A": "b"},
        "nested": [{"apiKey": "k"}],
        "retries": 2,
    }
    definition = made(handler_ref="http", config=config)
    shown = definition.public_fields()
    assert shown["config"] == {
        "url": f"https://example.com/hook?{HIDDEN}",
        "secret": HIDDEN,
        "secret_env": "ACME_SECRET",
        "headers": {"X-Team": HIDDEN},
        "env": {"A": HIDDEN},
        "nested": [{"apiKey": HIDDEN}],
        "retries": 2,
    }
    back = HookChanges(config={**shown["config"], "retries": 3}).apply_to(definition, now=NOON)
    assert back.config == {**config, "retries": 3}
    new = HookChanges(config={"secret": "whsec_new"}).apply_to(definition, now=NOON)
    assert new.config == {"secret": "whsec_new"}


@pytest.mark.fault("F-API-08")
@pytest.mark.rule("API-4")
@pytest.mark.parametrize(
    "config",
    [
        {"url": "https://evil.example/hook", "headers": {"X-Key": HIDDEN}},
        {"url": f"https://evil.example/hook?{HIDDEN}"},
        {"url": "https://evil.example/hook", "secret": HIDDEN},
        {"url": "https://example.com/hook", "headers": {"X-Other": HIDDEN}},
        {"url": "https://example.com/hook", "nested": [{"token": HIDDEN}, {"token": "t", "to": "ftp://evil.example"}]},
    ],
)
def test_secrets_are_not_taken_along(config: dict[str, Any]) -> None:
    """The hidden form of a secret restores it only for the secret's own address and place."""
    kept = {
        "url": "https://example.com/hook?k=1",
        "secret": "whsec_abc",
        "headers": {"X-Key": "abc"},
        "nested": [{"token": "t"}],
    }
    definition = made(handler_ref="http", config=kept)
    with pytest.raises(ValidationError, match="in the place of a secret"):
        HookChanges(config=config).apply_to(definition, now=NOON)
    with pytest.raises(ValidationError, match="in the place of a secret"):
        made(handler_ref="http", config=config)
    elsewhere = HookChanges(config={"url": "https://other.example", "secret": "s" * 9}).apply_to(definition, now=NOON)
    assert elsewhere.config == {"url": "https://other.example", "secret": "s" * 9}


@pytest.mark.rule("DEF-1")
def test_ids_differ() -> None:
    """An id is `hook_` and twelve hex digits, and no two are the same."""
    ids = {new_hook_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(made(hook_id=one).hook_id == one for one in ids)


@pytest.mark.rule("DEF-1")
def test_whole_milliseconds_as_a_decimal() -> None:
    """A timeout of 200.0 is one of 200, when a hook is written and when it is changed."""
    timeout = made(timeout_ms=200.0).timeout_ms
    assert (timeout, type(timeout)) == (200, int)
    assert HookChanges.model_validate({"timeout_ms": 150.0}).apply_to(made(), now=NOON).timeout_ms == 150


@pytest.mark.rule("DEF-3")
def test_defaults() -> None:
    """Nothing said is the table of the rule."""
    assert DefinitionSettings.load(environment={}).model_dump() == {
        "hooks_enabled": True,
        "hooks_definitions_dir": "hook-definitions",
        "hooks_default_timeout_ms": 200,
        "hooks_chain_timeout_ms": 500,
        "hooks_fail_open_default": True,
        "hooks_max_per_event": 20,
        "hooks_execution_log_enabled": True,
        "hooks_execution_log_retention_hours": 24,
    }


@pytest.mark.rule("DEF-3")
def test_the_environment_wins() -> None:
    """A variable stands over what a file says, in its own type; other variables mean nothing."""
    environment = {
        "AMPLIFIER_HOOKS_ENABLED": "false",
        "AMPLIFIER_HOOKS_DEFINITIONS_DIR": "hooks.d",
        "AMPLIFIER_HOOKS_MAX_PER_EVENT": "1",
        "AMPLIFIER_HOOKS_TRUST": "/x",
    }
    settings = DefinitionSettings.load({"hooks_max_per_event": 5, "hooks_chain_timeout_ms": 900.0}, environment)
    assert (settings.hooks_enabled, settings.hooks_definitions_dir) == (False, "hooks.d")
    assert (settings.hooks_max_per_event, settings.hooks_chain_timeout_ms) == (1, 900)


@pytest.mark.rule("DEF-3")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AMPLIFIER_HOOKS_ENABLED", "maybe"),
        ("AMPLIFIER_HOOKS_ENABLED", "2"),
        ("AMPLIFIER_HOOKS_MAX_PER_EVENT", "0"),
        ("AMPLIFIER_HOOKS_MAX_PER_EVENT", "many"),
        ("AMPLIFIER_HOOKS_DEFAULT_TIMEOUT_MS", "5001"),
        ("AMPLIFIER_HOOKS_DEFAULT_TIMEOUT_MS", "9" * 5000),
        ("AMPLIFIER_HOOKS_DEFINITIONS_DIR", ""),
    ],
)
def test_a_variable_of_the_wrong_type_is_named(variable: str, value: str) -> None:
    """A value of the wrong type is an error that names the variable and the default."""
    with pytest.raises(SettingsError, match=f"^{variable}: .*The default is"):
        DefinitionSettings.load(environment={variable: value})


@pytest.mark.rule("DEF-3")
def test_an_unknown_setting_is_named() -> None:
    """A key that is no setting is an error with the likely one."""
    with pytest.raises(SettingsError, match="did you mean 'hooks_enabled'"):
        DefinitionSettings.load({"hooks_enable": True}, environment={})
