import re
from typing import Any

import pytest

from amplifier_hooks.definitions.model import NewHook
from amplifier_hooks.definitions.tenant_rules import check_tenant_hook, is_tenant_allowed
from amplifier_hooks.errors import HookRefused


def hook(**said: Any) -> NewHook:
    """Make a web service's hook, of which some is said."""
    return NewHook(**{"name": "a", "event_type": "tool:pre", "handler_ref": "http", **said})


@pytest.mark.rule("TEN-1", "TRU-1")
@pytest.mark.fault("F-API-03", "F-API-04", "F-API-05")
@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"event_type": "llm:post"}, "privileged_hooks"),
        ({"event_type": "onModelResponse"}, "privileged_hooks"),
        ({"event_type": "context:*"}, "privileged_hooks"),
        ({"event_type": "llm:pre"}, "privileged_hooks"),
        ({"event_type": "model"}, "privileged_hooks"),
        ({"event_type": "*"}, "privileged_hooks"),
        ({"handler_ref": "command", "config": {"argv": ["true"]}}, "handler_ref"),
        ({"handler_ref": "os:system"}, "handler_ref"),
        ({"handler_ref": "agent"}, "handler_ref"),
        ({"matcher": "re:(a+)+$"}, "matcher"),
        ({"config": {"url": "https://a.example", "networks": ["10.0.0.0/8"]}}, "config.networks"),
        ({"config": {"secret_env": "DATABASE_URL"}}, "config.secret_env"),
    ],
)
def test_what_a_tenant_may_not_have(said: dict[str, Any], named: str) -> None:
    """A tenant has no hook at a privileged point, none that runs code here, and no regular expression."""
    new = hook(**said)
    with pytest.raises(HookRefused, match=re.escape(named)):
        check_tenant_hook(new, "acme")
    check_tenant_hook(new, "")


@pytest.mark.rule("TEN-1")
def test_what_a_tenant_may_have() -> None:
    """A web service at an open point is allowed, and an entry point the operator named; a command never is."""
    check_tenant_hook(hook(event_type="tool:*", matcher="Write|mcp__*"), "acme")
    check_tenant_hook(hook(handler_ref="redact"), "acme", handlers={"redact", "command"})
    with pytest.raises(HookRefused, match="allowed: redact"):
        check_tenant_hook(hook(handler_ref="command"), "acme", handlers={"redact", "command"})
    assert is_tenant_allowed("acme:deploy")
