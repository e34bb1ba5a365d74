"""Log lines hold what strangers chose, and do nothing to the terminal or to who reads them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_runtime.console import log_format
from tests.security.arbitrary import FUZZ

ESCAPES = "\x1b[2J\x9b31m\u202eevil\u200b\ud800\0\r"


@pytest.fixture(params=[True, False], ids=["json", "text"])
def as_json(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in ("pika", "asyncio")}
    yield
    root.handlers[:], root.level = before[0], before[1]
    for name, level in before[2].items():
        logging.getLogger(name).setLevel(level)


def written(as_json: bool, key: str, error: Exception | None = None) -> str:
    """What one log line about a key becomes."""
    log_format.configure(as_json=as_json)
    stream = io.StringIO()
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    logging.getLogger("osrdyne.test").warning("a line", extra={"key": key}, exc_info=error)
    return stream.getvalue()


def test_escapes_in_a_key_or_an_exception_reach_no_terminal(as_json: bool) -> None:
    for text in (written(as_json, ESCAPES), written(as_json, "42", ValueError(ESCAPES))):
        assert text.encode("utf-8")
        assert not set(ESCAPES.replace("evil", "").replace("[2J", "").replace("31m", "")) & set(text)
        assert "evil" in text


@FUZZ
@given(st.text(max_size=50))
def test_a_json_line_is_one_line_that_gives_back_any_key(key: str) -> None:
    text = written(True, key)

    assert text.count("\n") == 1
    assert json.loads(text)["key"] == key


@FUZZ
@given(st.text(max_size=50))
def test_a_text_line_is_one_line(key: str) -> None:
    assert written(False, key).count("\n") == 1
