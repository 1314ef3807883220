"""Hooks that are commands, with real processes."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.definitions.kinds.command import CommandHook, Programs
from amplifier_hooks.definitions.kinds.event_codec import NATIVE, NATIVE_OPEN, NativeCodec
from amplifier_hooks.dispatch import captured_output
from amplifier_hooks.errors import HookFailed, HookUnavailable, InvalidRegistration, InvalidResult
from amplifier_hooks.result import HookResult, Outcome

CALL: dict[str, Any] = {"session_id": "s", "tool_name": "Write", "tool_call_id": "c", "tool_input": {"path": "a"}}


def shell(script: str, **options: Any) -> CommandHook:
    """A hook that is a line of shell."""
    return CommandHook(argv=("/bin/sh", "-c", script), **options)


async def ask(hook: CommandHook, event: str = "tool:pre", data: dict[str, Any] | None = None) -> HookResult:
    """Return the answer of a hook."""
    return await hook(event, CALL if data is None else data)


async def gated(hook: CommandHook, timeout: float | None = 20.0) -> Outcome:
    """Return the outcome of a tool call with this hook as its gate."""
    registry = HookRegistry()
    registry.gate("tool:pre", name="guard", timeout=timeout)(hook)
    return await registry.emit("tool:pre", CALL)


def processes() -> Iterator[list[str]]:
    """State, parent, group and so on of every process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield stat.read_text().rpartition(")")[2].split()


async def until(true: Callable[[], bool]) -> None:
    """Come back when something outside of this process is so."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  # no other process can set an event
            await asyncio.sleep(0.005)


async def gone(group: int) -> None:
    """Come back when no process of this group is left."""
    await until(lambda: not any(parts[2] == str(group) and parts[0] not in "ZX" for parts in processes()))


async def written(path: Path) -> str:
    """Return the content of a file once it has a whole line."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text()  # noqa: ASYNC240  # a few bytes


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("DEF-2", "DEF-4")
async def test_it_reads_the_event_and_answers_with_a_result(tmp_path: Path) -> None:
    """A command is sent the event and its payload as one JSON object, and answers with the fields of a HookResult."""
    answer = json.dumps({"action": "modify", "data": {"tool_input": {"path": "b"}}, "user_message": "moved"})
    result = await ask(shell(f"cat > {tmp_path}/in; printf '%s' '{answer}'"))
    assert json.loads((tmp_path / "in").read_text()) == {"event": "tool:pre", "data": CALL}
    assert (result.action, result.data, result.user_message) == ("modify", {"tool_input": {"path": "b"}}, "moved")


@pytest.mark.fault("F-CMD-01")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'not here' >&2; exit 2", "not here"),
        ("exit 2", None),
        ('echo \'{"action": "continue"}\'; echo why >&2; exit 2', "why"),
        ("echo '{\"action'; exit 2", None),
        ("printf 'a\\033[2Jb\\342\\200\\256' >&2; exit 2", "a\\u{1B}[2Jb\\u{202E}"),
    ],
)
async def test_exit_status_two_denies(script: str, reason: str | None) -> None:
    """Exit status 2 denies whatever standard output says, and standard error, escaped, is the reason."""
    outcome = await gated(shell(script))
    assert (outcome.action, outcome.cause, outcome.denied_by) == ("deny", "denied_by_hook", "guard")
    assert reason is None or outcome.reason == reason


@pytest.mark.fault("F-CMD-01")
async def test_a_long_reason_is_bounded() -> None:
    """A reason of any length reaches the model with at most 2 KiB, and says how much is left out."""
    result = await ask(shell("head -c 9000 /dev/zero | tr '\\0' x >&2; exit 2"))
    assert result.reason is not None
    assert len(result.reason.encode()) <= 2048
    assert result.reason.endswith("bytes)")


@pytest.mark.fault("F-CMD-02")
@pytest.mark.parametrize(
    ("output", "action", "cause"),
    [
        ('{"action": "deny", "reason": "no"}', "deny", "denied_by_hook"),
        ("", "continue", None),
        (" \n", "continue", None),
        ("all fine", "deny", "hook_invalid_output"),
        ("null", "deny", "hook_invalid_output"),
        ('{"action": "deny"', "deny", "hook_invalid_output"),
        ('{"action": "deny"} trailing', "deny", "hook_invalid_output"),
        ('{"action": "deny", "action": "continue"}', "deny", "hook_invalid_output"),
        ('{"action": "continue", "data": NaN}', "deny", "hook_invalid_output"),
        ('[{"action": "continue"}]', "deny", "hook_invalid_output"),
        ('{"action": "allow"}', "deny", "hook_invalid_output"),
        ('{"action": "ask_user", "risk": "high", "risk_reason": "a new host"}', "ask_user", None),
        ('{"action": "ask_user", "risk": "hihg"}', "deny", "hook_invalid_output"),
        ('{"action": "ask_user", "riks": "high"}', "deny", "hook_invalid_output"),
        ('{"acton": "continue"}', "deny", "hook_invalid_output"),
        ("{}", "deny", "hook_invalid_output"),
        ("[" * 40_000, "deny", "hook_invalid_output"),
        ('{"a":' * 70 + "1" + "}" * 70, "deny", "hook_invalid_output"),
    ],
)
async def test_exit_status_zero_says_what_it_prints(
    output: str, action: str, cause: str | None, tmp_path: Path
) -> None:
    """With exit status 0 a printed object decides at a gate, nothing decides nothing, and all else is invalid."""
    (tmp_path / "out").write_text(output)
    outcome = await gated(shell(f"cat {tmp_path}/out"))
    assert (outcome.action, outcome.cause) == (action, cause)


DENIAL = '{"action": "deny", "reason": "no"}'
BURIED = {
    "byte-order mark": f"\ufeff{DENIAL}".encode(),
    "UTF-16": DENIAL.encode("utf-16"),
    "UTF-16 BE": DENIAL.encode("utf-16-be"),
    "NUL": f"\0{DENIAL}".encode(),
    "no-break space": f"\u00a0{DENIAL}".encode(),
    "zero-width space": f"\u200b{DENIAL}".encode(),
    "ANSI reset": f"\x1b[0m{DENIAL}".encode(),
    "log line": f"loading policy\n{DENIAL}".encode(),
    "word": f"OK {DENIAL}".encode(),
    "code fence": f"```json\n{DENIAL}\n```".encode(),
    "broken": b'loading policy\n{"action" : "deny",}',
}
"""An answer behind what is no part of it."""


@pytest.mark.rule("DEF-4")
@pytest.mark.fault("F-CMD-02")
@pytest.mark.parametrize("codec", [NATIVE, NATIVE_OPEN], ids=["gate", "elsewhere"])
@pytest.mark.parametrize("stray", BURIED)
async def test_an_answer_behind_something_else_is_invalid(stray: str, codec: NativeCodec, tmp_path: Path) -> None:
    """An answer behind stray bytes or lines is invalid everywhere: it must not read like an answer that lets pass."""
    (tmp_path / "out").write_bytes(BURIED[stray])
    outcome = await gated(shell(f"cat {tmp_path}/out", codec=codec))
    assert (outcome.action, outcome.cause) == ("deny", "hook_invalid_output")


@pytest.mark.rule("DEF-4")
@pytest.mark.parametrize("text", ["all fine", "[INFO] done", 'sent {"action": "upload"}', '"action": "deny"'])
async def test_text_elsewhere_is_no_decision(text: str, tmp_path: Path) -> None:
    """Where no gate stands, a command may print text, also with JSON in it that is no answer."""
    (tmp_path / "out").write_text(text)
    assert await ask(shell(f"cat {tmp_path}/out", codec=NATIVE_OPEN)) == HookResult()


@pytest.mark.fault("F-CMD-03")
@pytest.mark.parametrize(
    "ending", ["exit 1", "exit 3", "exit 126", "exit 127", "exit 255", "kill -9 $$", "kill -ABRT $$", "kill -SEGV $$"]
)
async def test_any_other_ending_is_a_failure(ending: str) -> None:
    """Every other exit status, and every signal, is an error of the hook; its gate denies, and no decision is made."""
    outcome = await gated(shell(f'echo \'{{"action": "continue"}}\'; echo lost >&2; {ending}'))
    assert (outcome.action, outcome.cause) == ("deny", "hook_error")
    assert "lost" in (outcome.answers[0].error or "")


async def test_an_exit_status_that_wraps_round_denies() -> None:
    """Exit status 258 arrives as 2, and so denies."""
    code = "import os; os._exit(258)"
    assert (await ask(CommandHook(argv=(sys.executable, "-I", "-c", code)))).action == "deny"


@pytest.mark.rule("DIS-2")
async def test_what_it_prints_to_standard_error_is_its_output() -> None:
    """Standard error of a command is kept with its answer."""
    outcome = await gated(shell("echo looked at 3 files >&2"))
    assert outcome.answers[0].output == "looked at 3 files\n"


# -- what it needs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Commands that cannot run, by what is wrong with them."""
    script = tmp_path / "guard.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    lost = tmp_path / "lost.sh"
    lost.write_text("#!/nowhere/interpreter\n")
    lost.chmod(0o755)
    return {
        "no program": ("no-such-command-anywhere",),
        "no file": ("./missing.sh",),
        "not executable": ("./guard.sh",),
        "no interpreter": ("./lost.sh",),
        "a folder": (os.fspath(tmp_path),),
        "no script": (sys.executable, "missing.py"),
        "a folder for a script": (sys.executable, "."),
    }


@pytest.mark.fault("F-CMD-04")
@pytest.mark.parametrize(
    "what",
    ["no program", "no file", "not executable", "no interpreter", "a folder", "no script", "a folder for a script"],
)
async def test_what_is_missing_is_named(what: str, broken: dict[str, tuple[str, ...]], tmp_path: Path) -> None:
    """A command that cannot run says so when asked beforehand, and its gate denies as unavailable."""
    hook = CommandHook(argv=broken[what], cwd=os.fspath(tmp_path))
    assert list(hook.problems())
    outcome = await gated(hook)
    assert (outcome.action, outcome.cause) == ("deny", "hook_unavailable")


@pytest.mark.parametrize("line", ["#!/bin/sh", "#!/bin/sh\t-e", "#!\t/usr/bin/env\tsh"])
async def test_what_is_there_has_no_problem(line: str, tmp_path: Path) -> None:
    """A script that is executable, found from its working directory, has no problem and runs."""
    script = tmp_path / "guard.sh"
    script.write_text(f"{line}\nexit 2\n")
    script.chmod(0o755)
    hook = CommandHook(argv=("./guard.sh",), cwd=os.fspath(tmp_path))
    assert list(hook.problems()) == []
    assert (await ask(hook)).action == "deny"


@pytest.mark.fault("F-CMD-14")
async def test_it_runs_where_it_was_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command runs in its own folder whatever others do to ours, and not at all when that is gone."""
    own = tmp_path / "own"
    own.mkdir()
    hook = shell("pwd >&2; exit 2", cwd=os.fspath(own))
    monkeypatch.chdir(tmp_path)
    assert (await ask(hook)).reason == os.fspath(own)
    shutil.rmtree(own)
    assert (await gated(hook)).cause == "hook_unavailable"


@pytest.mark.fault("F-CMD-10")
async def test_it_sees_few_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command sees the listed variables, its own and its trace, no key of ours, and its command line no payload."""
    monkeypatch.setenv("PROVIDER_API_KEY", "sk-secret")
    hook = shell(f"env > {tmp_path}/env; tr '\\0' ' ' < /proc/$$/cmdline > {tmp_path}/line", env={"MODE": "strict"})
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await ask(hook, data={**CALL, "tool_input": {"path": "needle"}, "traceparent": trace})
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert (seen["MODE"], seen["TRACEPARENT"], seen["PATH"]) == ("strict", trace, os.environ["PATH"])
    assert "sk-secret" not in seen.values()
    assert "needle" not in (tmp_path / "line").read_text()
    await ask(hook, data={**CALL, "traceparent": "00-\nEVIL=1"})
    assert "EVIL" not in (tmp_path / "env").read_text()


@pytest.mark.fault("F-CMD-11")
async def test_arguments_are_literal() -> None:
    """Blanks, quotes, shell syntax, newlines and leading dashes in arguments arrive as they are."""
    given = ["a b", "'\"", "; rm x", "$(id)", "`id`", "line\nbreak", "-rf", "*", ""]
    code = "import json, sys; print(json.dumps(sys.argv[1:]), file=sys.stderr); sys.exit(2)"
    result = await ask(CommandHook(argv=(sys.executable, "-I", "-c", code, *given)))
    assert json.loads(result.reason or "") == given


@pytest.mark.fault("F-CMD-12")
async def test_it_has_no_terminal() -> None:
    """A command that asks for the controlling terminal has none."""
    assert (await ask(shell("if (exec 3<>/dev/tty) 2>/dev/null; then exit 0; else exit 2; fi"))).action == "deny"


@pytest.mark.parametrize("argv", [(), "ls -l", ("",), (1,)])
def test_a_command_is_a_list(argv: Any) -> None:
    """A command line in one string, an empty one, and one that is not of strings is refused."""
    with pytest.raises(InvalidRegistration, match="list of strings"):
        CommandHook(argv=argv)


async def test_a_nul_in_an_argument_is_unavailable() -> None:
    """An argument that no operating system takes makes the hook unavailable."""
    with pytest.raises(HookUnavailable):
        await ask(CommandHook(argv=("/bin/sh", "-c", "exit 0\0")))


# -- time and children -------------------------------------------------------------------------------------------------


@pytest.mark.fault("F-CMD-05")
@pytest.mark.parametrize("script", ["sleep 60", "trap '' TERM INT HUP; while :; do sleep 60; done", "kill -STOP $$"])
async def test_a_deadline_ends_the_group(script: str, tmp_path: Path) -> None:
    """A command past its time is a timeout, and it and its children are gone, also when it ignores or sleeps it out."""
    for seconds in (1.0, 5.0, 25.0):
        outcome = await gated(shell(f"echo $$ > {tmp_path}/pid; sleep 61 & {script}"), timeout=seconds)
        assert (outcome.action, outcome.cause) == ("deny", "hook_timeout")
        if (tmp_path / "pid").exists():  # a busy machine may not have come so far
            break
    await gone(int(await written(tmp_path / "pid")))


async def test_a_command_that_is_told_to_end_may_clean_up(tmp_path: Path) -> None:
    """Cancelling asks a command to end before it is killed."""
    programs = Programs(farewell=10.0)
    hook = shell(
        f"trap 'echo cleaned > {tmp_path}/end; exit 0' TERM; echo up > {tmp_path}/up; sleep 60 & wait",
        programs=programs,
    )
    task = asyncio.create_task(ask(hook))
    await written(tmp_path / "up")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await written(tmp_path / "end") == "cleaned\n"


@pytest.mark.fault("F-CMD-06", "F-CMD-07")
@pytest.mark.parametrize(("ending", "cause"), [("exit 2", "denied_by_hook"), ("kill -9 $$", "hook_error")])
async def test_a_child_that_holds_the_pipe_is_not_waited_for(ending: str, cause: str, tmp_path: Path) -> None:
    """The command's own end counts at once when a child keeps its output open, and the child is ended."""
    began = time.monotonic()
    outcome = await gated(shell(f"echo $$ > {tmp_path}/pid; sleep 60 & {ending}"), timeout=30)
    assert (outcome.action, outcome.cause) == ("deny", cause)
    assert time.monotonic() - began < 30
    await gone(int(await written(tmp_path / "pid")))


@pytest.mark.rule("DEF-4")
@pytest.mark.fault("F-CMD-07")
async def test_a_child_with_a_session_of_its_own_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that left the group and keeps the pipe is ended and reported, and the answer does not wait for it."""
    kept: list[bytes] = []
    monkeypatch.setattr(captured_output, "keep_output", kept.append)
    code = (
        "import os, pathlib, time\nr, w = os.pipe()\nif os.fork(): os.read(r, 1); os._exit(2)\nos.setsid()\n"
        f"pathlib.Path('{tmp_path}/pid').write_text(f'{{os.getpid()}}\\n')\nos.write(w, b'.')\ntime.sleep(60)"
    )
    result = await ask(CommandHook(argv=(sys.executable, "-I", "-c", code)))
    assert result.action == "deny"
    pid = await written(tmp_path / "pid")
    await gone(int(pid))
    assert f"(process {pid.strip()})" in kept[-1].decode()


@pytest.mark.rule("DEF-4")
async def test_a_command_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """A daemon of a command whose time is up is ended, too."""
    outcome = await gated(shell(f"setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 60' & sleep 60"), timeout=3)
    assert outcome.cause == "hook_timeout"
    await gone(int(await written(tmp_path / "pid")))


@pytest.mark.fault("F-CMD-08")
@pytest.mark.parametrize("script", ["exit 2", "exec 0<&-; exit 2", "cat > /dev/null; exit 2"])
async def test_it_may_read_as_it_likes(script: str) -> None:
    """A large payload that is not read, not wanted or read to its end hinders neither the command nor its status."""
    result = await ask(shell(script), data={**CALL, "tool_input": {"text": "x" * 1_000_000}})
    assert result.action == "deny"


@pytest.mark.fault("F-CMD-08")
async def test_a_payload_that_is_too_large_is_not_sent() -> None:
    """A payload over the limit, or nested too deeply, is not cut: the hook counts as unavailable."""
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"in": deep}
    for data in ({**CALL, "tool_input": {"text": "x" * 2_000_000}}, {**CALL, "tool_input": deep}):
        with pytest.raises(HookUnavailable, match="payload"):
            await ask(shell("exit 0"), data=data)


@pytest.mark.fault("F-CMD-09")
@pytest.mark.parametrize("stream", ["", " >&2"])
async def test_output_without_end_is_overflow(stream: str, tmp_path: Path) -> None:
    """A command that writes without end is killed, and its answer is invalid."""
    outcome = await gated(shell(f"echo $$ > {tmp_path}/pid; exec yes{stream}"), timeout=30)
    assert (outcome.action, outcome.cause) == ("deny", "hook_invalid_output")
    await gone(int(await written(tmp_path / "pid")))


@pytest.mark.fault("F-CMD-09")
@pytest.mark.parametrize("output", [b'{"action": "continue", "reason": "\xff"}', b'{"action":\0"continue"}'])
async def test_odd_bytes_are_no_answer(output: bytes, tmp_path: Path) -> None:
    """Invalid UTF-8 and NUL bytes in an answer make it invalid."""
    (tmp_path / "out").write_bytes(output)
    with pytest.raises(InvalidResult):
        await ask(shell(f"cat {tmp_path}/out"))


@pytest.mark.fault("F-CMD-13")
async def test_few_run_at_once_and_in_order(tmp_path: Path) -> None:
    """Of two hundred calls only so many run at a time, they start in the order they came, and all are answered."""
    programs = Programs(at_once=4)
    hook = shell(
        f'read line; echo + "$line" >> {tmp_path}/log; sleep 0.01; echo - >> {tmp_path}/log; exit 2', programs=programs
    )
    calls = [ask(hook, data={**CALL, "tool_call_id": f"{number:03}"}) for number in range(200)]
    assert all(result.action == "deny" for result in await asyncio.gather(*calls))
    running = most = 0
    started = []
    for line in (tmp_path / "log").read_text().splitlines():
        running += 1 if line.startswith("+") else -1
        most = max(most, running)
        if line.startswith("+"):
            started.append(int(json.loads(line[2:])["data"]["tool_call_id"]))
    assert most <= 4
    # A program that the system lets wait writes late, so a place may exceed its number by any amount.
    assert all(number - place < 4 for place, number in enumerate(started))


@pytest.mark.fault("F-CMD-13")
async def test_a_full_queue_is_unavailable() -> None:
    """When too many wait for their turn already, the next is unavailable at once, and those before it are served."""
    hook = shell("exit 2", programs=Programs(at_once=1, waiting=2))
    results = await asyncio.gather(*(ask(hook) for _ in range(4)), return_exceptions=True)
    assert [isinstance(result, HookUnavailable) for result in results].count(True) >= 1
    assert all(isinstance(result, HookUnavailable) or result.action == "deny" for result in results)  # type: ignore[union-attr]


@pytest.mark.fault("F-CMD-13")
async def test_waiting_for_a_turn_counts(tmp_path: Path) -> None:
    """The time a command waits for its turn is taken from its own limit."""
    programs = Programs(at_once=1)
    first = asyncio.create_task(ask(shell(f"echo up > {tmp_path}/up; sleep 60", programs=programs)))
    await written(tmp_path / "up")
    outcome = await gated(shell("exit 0", programs=programs), timeout=0.2)
    assert outcome.cause == "hook_timeout"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await ask(shell("exit 2", programs=programs))).action == "deny"


def test_one_hook_serves_several_loops() -> None:
    """One hook works in one event loop after another."""
    hook = shell("exit 2", programs=Programs(at_once=1))

    async def two() -> list[HookResult]:
        return list(await asyncio.gather(ask(hook), ask(hook)))

    assert [result.action for _ in range(2) for result in asyncio.run(two())] == ["deny"] * 4


def test_a_failure_is_typed() -> None:
    """A failed command raises an error of its own kind."""
    with pytest.raises(HookFailed, match="exit status 7"):
        asyncio.run(ask(shell("exit 7")))


@pytest.mark.rule("TRU-5")
async def test_git_runs_no_monitor_of_the_repository(tmp_path: Path) -> None:
    """A command that asks git for the status does not run the monitor that the repository names."""
    monitor = tmp_path / "monitor"
    monitor.write_text("#!/bin/sh\ntouch ran\n")
    monitor.chmod(0o755)
    begin = f"git init --quiet; git config core.fsmonitor {monitor}; touch a; git status >&2"
    await ask(shell(begin, cwd=str(tmp_path)))
    assert not (tmp_path / "ran").exists()
    await ask(shell("GIT_CONFIG_COUNT=0 git status >&2", cwd=str(tmp_path)))
    assert (tmp_path / "ran").exists(), "the repository names no monitor"


@pytest.mark.rule("TRU-5")
async def test_settings_for_git_are_joined(tmp_path: Path) -> None:
    """Settings for git in a definition's variables follow those of the hook, and take none of them away."""
    own = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    question = "{ git config core.fsmonitor; git config a.b; } > out"
    await ask(shell(question, cwd=str(tmp_path), env=own))
    assert (tmp_path / "out").read_text() == "false\nc\n"
