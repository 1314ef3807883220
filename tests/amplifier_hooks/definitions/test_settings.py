import pytest

from amplifier_hooks.definitions import DefinitionSettings
from amplifier_hooks.errors import SettingsError

pytestmark = pytest.mark.rule("DEF-3")


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


def test_an_unknown_setting_is_named() -> None:
    """A key that is no setting is an error with the likely one."""
    with pytest.raises(SettingsError, match="did you mean 'hooks_enabled'"):
        DefinitionSettings.load({"hooks_enable": True}, environment={})
