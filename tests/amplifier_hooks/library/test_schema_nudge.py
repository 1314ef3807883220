from typing import Any

import pytest

from amplifier_hooks import HookRegistry, Outcome, SessionCoordinator
from amplifier_hooks.library import SchemaNudge
from amplifier_hooks.testing import RecordingContext

pytestmark = pytest.mark.rule("LIB-1")

TOOLS = {
    "Read": {"input_schema": {"type": "object", "properties": {"limit": {"type": "integer"}}}, "required": ["path"]}
}


@pytest.fixture
def registry() -> HookRegistry:
    """Return a registry with the hook."""
    registry = HookRegistry()
    SchemaNudge.from_config({"tools": TOOLS}).register(registry)
    return registry


async def returned(registry: HookRegistry, result: object, value: object = None, **more: Any) -> Outcome:
    """Return the outcome of a result."""
    payload = {"session_id": "s", "tool_name": "Read", "tool_input": {} if value is None else value, "result": result}
    return await registry.emit("tool:post", {**payload, **more})


async def test_once_for_each_mistake(registry: HookRegistry) -> None:
    """A new mistake in a session brings up the right form; a repeated mistake does not."""
    error = {"is_error": True, "content": "1 validation error for Read"}
    said = [
        (await returned(registry, error, value, session_id=session)).context_injection
        for value, session in (({}, "s"), ({"limit": 3}, "s"), ({"path": "a", "limit": "x"}, "s"), ({}, "t"))
    ]
    assert said == [
        'Read refused its input. "path" is a required property. Correct is, for example: {"path": "text"}',
        None,
        (
            'Read refused its input. At /limit: this value is not of type "integer". '
            'Correct is, for example: {"path": "text"}'
        ),
        'Read refused its input. "path" is a required property. Correct is, for example: {"path": "text"}',
    ]
    await registry.emit("session:end", {"session_id": "s"})
    assert (await returned(registry, error)).injections


@pytest.mark.parametrize(
    ("result", "noticed"),
    [
        ("Invalid parameters: path", True),
        ({"error": {"code": -32602, "message": "no"}}, True),
        ({"isError": True, "content": [{"type": "text", "text": "Field required"}]}, True),
        ({"content": "validation error"}, False),
        ("x" * 3_000 + "validation error", False),
        ({"is_error": True, "content": "no such file"}, False),
        (["validation error"], False),
        (None, False),
    ],
)
async def test_what_counts_as_a_complaint(registry: HookRegistry, result: object, noticed: bool) -> None:
    """A result marked as an error and text that begins like one count; text that merely has the words does not."""
    assert bool((await returned(registry, result)).injections) is noticed


async def test_other_tools_are_left_alone(registry: HookRegistry) -> None:
    """A tool without a shape gets no hint."""
    assert not (await returned(registry, "Invalid parameters", tool_name="Write")).injections
    assert not (await returned(registry, "Invalid parameters", tool_name=None)).injections


async def test_input_that_is_right_by_the_schema(registry: HookRegistry) -> None:
    """If the schema finds no mistake, the example is shown, once for each complaint."""
    results = ["Invalid input: a", "Invalid input: a", "Invalid input: b"]
    said = [(await returned(registry, result, {"path": "a"})).context_injection for result in results]
    hint = 'Read refused its input. Correct is, for example: {"path": "text"}'
    assert said == [hint, None, hint]
    assert (await returned(registry, "Invalid input", {1: 2})).context_injection == hint


async def test_a_tool_that_raises() -> None:
    """An error that a tool raised counts, too; the hint reaches the model in that turn, and stays if configured."""
    context, registry = RecordingContext(), HookRegistry()
    SchemaNudge.from_config({"tools": TOOLS, "lasting": True}).register(registry)

    def read(value: object) -> None:
        raise TypeError("read() missing 1 required positional argument: 'path'")

    async with SessionCoordinator(hooks=registry, context=context) as session, session.turn("go"):
        assert (await session.call_tool("Read", {}, read)).error
        assert (await session.call_tool("Write", {}, read)).error
    (hint,) = [message.content for message in context.messages if "refused its input" in message.content]
    assert 'Correct is, for example: {"path": "text"}' in hint
