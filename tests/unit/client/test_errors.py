"""What `from osrdyne_client.errors import *` gives a program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import osrdyne_client
import steps
from osrdyne_calls.errors import WorkerFailed
from osrdyne_calls.replies import answer_of
from osrdyne_client import errors
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_protocol.statuses import LONGEST_LINE


def test_the_module_of_errors_has_nothing_but_errors() -> None:
    found = {name: value for name, value in vars(errors).items() if not name.startswith("_")}
    others = {
        name for name, value in found.items() if not (isinstance(value, type) and issubclass(value, OsrdyneError))
    }

    assert others == {"REMOTE_ERRORS"}
    assert {"CallTimeout", "InvalidKey", "BrokerUnreachable"} <= found.keys()


def test_every_error_that_the_page_names_is_in_the_package_itself() -> None:
    page = Path(steps.ROOT, "docs/howto/client.md").read_text()
    rows = page.split("## What can be raised\n")[1].partition("\n## ")[0]
    named = {name for name in re.findall(r"`([A-Z]\w+)`", rows) if hasattr(errors, name)}

    assert {"RemoteError", "Expired", "Nacked", "InvalidUri", "OtherProcess"} <= named
    assert named | {error.__name__ for error in errors.REMOTE_ERRORS.values()} <= set(osrdyne_client.__all__)


@pytest.mark.parametrize(
    ("reason", "body", "text"),
    [
        ("the handler raised an exception", b"KeyError: '9'", "the handler raised an exception: KeyError: '9'"),
        ("it cannot", b"\n  first \nsecond", "it cannot: first"),
        (None, b"why", "answered that it cannot serve it; the body says why: why"),
        ("it cannot", b"", "it cannot"),
        ("it cannot", b"\xff\xfe", "it cannot"),
        ("it cannot", b"a\x1b[31m", "it cannot"),
        ("it cannot", "é".encode() * 1000, "it cannot: " + "é" * LONGEST_LINE),
    ],
)
def test_the_text_of_an_error_has_the_first_line_of_what_the_worker_said(
    reason: str | None, body: bytes, text: str
) -> None:
    error = answer_of({"x-status": "error", "x-reason": reason}, body, "7")

    assert isinstance(error, WorkerFailed)
    assert str(error).endswith(f"{text} (correlation id 7)")
