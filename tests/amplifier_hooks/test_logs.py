import json
import logging
import subprocess
import sys

import pytest
import structlog

from amplifier_hooks.logs import get_logger

NAME = "amplifier_hooks.test_logs"
TAKEN = {*vars(logging.makeLogRecord({})), "message", "asctime", "event", "level", "stacklevel"} - {
    "exc_info",  # logging gives these two a meaning
    "stack_info",
}


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    """Set the host's log level to the lowest."""
    caplog.set_level(logging.DEBUG, NAME)


def test_fields_are_attributes_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """A host with plain logging gets the event as message and the fields on the record."""
    get_logger(NAME).warning("hook.timed_out", hook="lint", limit=5.0)
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (NAME, "WARNING", "hook.timed_out")
    assert (vars(record)["hook"], vars(record)["limit"]) == ("lint", 5.0)


def test_levels(caplog: pytest.LogCaptureFixture) -> None:
    """Each method logs at its level; `exception` brings the traceback."""
    log = get_logger(NAME)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    try:
        raise ValueError("x")  # noqa: TRY301  to have one at hand
    except ValueError:
        log.exception("e")
    assert [(record.levelname, record.msg) for record in caplog.records] == [
        ("DEBUG", "a"),
        ("INFO", "b"),
        ("WARNING", "c"),
        ("ERROR", "d"),
        ("ERROR", "e"),
    ]
    assert [record.exc_info is not None and record.exc_info[0] for record in caplog.records] == [False] * 4 + [
        ValueError
    ]


def test_what_nobody_wants(caplog: pytest.LogCaptureFixture) -> None:
    """A level the host turned off costs no record."""
    caplog.set_level(logging.ERROR, NAME)
    get_logger(NAME).warning("x")
    assert caplog.records == []


def test_the_record_names_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """File and function are the caller's, not structlog's or ours."""
    get_logger(NAME).info("x")
    get_logger(NAME).error("x")
    assert {(record.filename, record.funcName) for record in caplog.records} == {
        ("test_logs.py", "test_the_record_names_the_caller")
    }


@pytest.mark.parametrize("key", sorted(TAKEN))
def test_taken_names_get_a_suffix(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """A field named like an attribute of LogRecord is neither an error nor a lie about the record."""
    get_logger(NAME).info("x", **{key: "mine"})
    (record,) = caplog.records
    assert record.getMessage() == "x"
    assert vars(record)[f"{key}_"] == "mine"


def test_taken_names_in_the_hosts_context(caplog: pytest.LogCaptureFixture) -> None:
    """Context variables the host bound join our lines, and cannot break them either."""
    with structlog.contextvars.bound_contextvars(request_id="r1", name="host", args=[1]):
        get_logger(NAME).info("x")
    (record,) = caplog.records
    assert (record.name, vars(record)["request_id"], vars(record)["name_"]) == (NAME, "r1", "host")


def test_a_host_with_structlog(caplog: pytest.LogCaptureFixture) -> None:
    """The formatter of structlog turns our records into its JSON."""
    get_logger(NAME).info("hook.finished", hook="lint")
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()], processor=structlog.processors.JSONRenderer()
    )
    line = json.loads(formatter.format(caplog.records[0]))
    assert (line["event"], line["hook"], line["level"]) == ("hook.finished", "lint", "info")


def test_silent_light_and_unconfigured() -> None:
    """A program that does not configure logging prints nothing, and loads and configures nothing."""
    program = f"""
import sys
from amplifier_hooks.logs import get_logger
log, loaded = get_logger({NAME!r}), set(sys.modules)
log.debug("x")
log.error("x", name="y")
assert set(sys.modules) == loaded
import structlog
log.error("x", name="y")
assert not structlog.is_configured()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
