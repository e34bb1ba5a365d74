"""The pages of errors: all classes that they name are exported by the top of their package."""

from __future__ import annotations

import importlib
import re

import pytest

from testbed import ROOT

#: By page: the package whose users read it.
PAGES = {
    "howto/client.md": "osrdyne_client",
    "reference/bus.md": "osrdyne_bus",
    "reference/relay-errors.md": "osrdyne_relay",
}
#: Those of all calls, which `osrdyne_calls.errors` and `osrdyne_protocol.errors` have: the site shows a class once.
SHARED = {"osrdyne_bus": {"InvalidTimeout", "NoFreeSlot", "OtherProcess", "RemoteError"}}
ROW = re.compile(r"^\| `[A-Z]\w+`.*", re.MULTILINE)
#: In the first two cells of a row.
CLASS = re.compile(r"`([A-Z][a-z]+[A-Z]\w+|Expired|Nacked|Rejected|Unroutable|Throttled|Cancelled)`")


@pytest.mark.parametrize("page", PAGES)
def test_each_error_of_a_page_is_exported_by_its_package(page: str) -> None:
    rows = ROW.findall((ROOT / "docs" / page).read_text())
    named = {name for row in rows for cell in row.split(" | ")[:2] for name in CLASS.findall(cell)}
    exported = importlib.import_module(PAGES[page]).__all__
    named -= SHARED.get(PAGES[page], set())

    assert len(named) >= 8
    assert named - {*exported} == set()
