"""Log lines: one line an event, fields that a machine can read, whatever a client put into them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from osrdyne_runtime import log_lines
from osrdyne_runtime.console import log_format


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    names = ("pika", "asyncio")
    before = root.handlers[:], root.level, [logging.getLogger(name).level for name in names]
    yield
    root.handlers[:], level, levels = before
    root.setLevel(level)
    for name, of in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(of)


def test_a_json_line_carries_message_level_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log_format.configure(as_json=True)
    logging.getLogger("osrdyne.x").info("queue deleted", extra={"key": "a\nb", "count": 3})
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "info", "logger": "osrdyne.x", "message": "queue deleted", "key": "a\nb", "count": 3}


def test_a_text_line_shows_fields_so_that_no_key_can_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_format.configure(as_json=False)
    logging.getLogger("osrdyne.x").warning("group failed", extra={"key": "a\nb", "reason": "é"})
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert text.endswith(' warning group failed key="a\\nb" reason="é"\n')


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_is_shown(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    log_format.configure(as_json=as_json)
    try:
        raise ValueError("of no use")
    except ValueError:
        logging.getLogger("osrdyne.x").exception("failed")
    assert "ValueError: of no use" in capsys.readouterr().err


def test_what_json_does_not_know_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    log_format.configure(as_json=True)
    logging.getLogger("osrdyne.x").info("seen", extra={"key": b"\xff"})
    assert json.loads(capsys.readouterr().err)["key"] == "b'\\xff'"


def test_debug_lines_come_only_on_request_and_configuring_twice_doubles_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_format.configure(as_json=True)
    log_format.configure(as_json=True)
    logging.getLogger("osrdyne.x").debug("hidden")
    logging.getLogger("osrdyne.x").info("shown")
    assert capsys.readouterr().err.count("\n") == 1
    log_format.configure(as_json=True, verbose=True)
    logging.getLogger("osrdyne.x").debug("now shown")
    assert "now shown" in capsys.readouterr().err


# --- many lines of one kind -------------------------------------------------------------------------------------------


class BoundedLogger:
    """A logger whose handler leaves out repeats, by a clock that a test moves."""

    def __init__(self, name: str) -> None:
        self.now, self.lines = 0.0, list[logging.LogRecord]()
        handler = logging.Handler()
        handler.emit = self.lines.append  # type: ignore[method-assign,assignment]
        handler.addFilter(log_format.Repeats(limit=3, window=60.0, clock=lambda: self.now))
        self.log = logging.getLogger(f"osrdyne.{name}")
        self.log.handlers, self.log.propagate = [handler], False
        self.log.setLevel(logging.INFO)

    def messages(self) -> list[str]:
        shown = [line.getMessage() for line in self.lines]
        self.lines.clear()
        return shown


def test_a_thousand_warnings_of_one_kind_are_a_few_lines_and_a_count() -> None:
    bounded = BoundedLogger("thousand")
    for number in range(1000):
        bounded.log.warning("group failed", extra={"key": number})
    bounded.log.warning("another kind")
    bounded.log.info("group started")
    assert bounded.messages() == ["group failed"] * 3 + ["another kind", "group started"]
    # When the minute is over, the next line of any kind brings the count
    bounded.now = 61.0
    bounded.log.info("group started")
    assert (bounded.lines[0].line, bounded.lines[0].left_out) == ("group failed", 997)  # type: ignore[attr-defined]
    assert bounded.messages() == ["more lines like this were left out", "group started"]
    # And the kind is shown again
    bounded.log.error("group failed")
    assert bounded.messages() == ["group failed"]


def test_a_few_warnings_are_all_shown_and_nothing_is_said_about_them() -> None:
    bounded = BoundedLogger("few")
    for second in range(0, 300, 25):
        bounded.now = float(second)
        bounded.log.warning("group failed")
    assert bounded.messages() == ["group failed"] * 12


def test_lines_that_are_not_warnings_are_never_left_out() -> None:
    bounded = BoundedLogger("info")
    for _ in range(100):
        bounded.log.info("group started")
    assert len(bounded.messages()) == 100


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("of_library", [True, False])
def test_of_an_exception_with_a_long_text_the_begin_and_the_end_are_shown(
    as_json: bool, of_library: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log_format.configure(as_json=as_json)
    log = log_lines.logger("osrdyne.y") if of_library else logging.getLogger("osrdyne.x")
    try:
        raise ValueError(f"first words {'x' * 1_000_000} last words")
    except ValueError:
        log.exception("a job failed", extra={"key": "LAX"})
    text = capsys.readouterr().err
    assert len(text) < 9_000
    assert all(part in text for part in ("a job failed", "LAX", "ValueError: first words", "last words"))


def test_the_lines_of_our_libraries_are_bounded_in_programs_of_others(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x" * 1_000_000)
    log_lines.logger("osrdyne.y").error("handler failed", exc_info=error)
    assert len(caplog.text) < 9_000
    # What collects errors has the error itself
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error
