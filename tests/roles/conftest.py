"""The order in which tests of roles start: those that take longest first, so that side by side they end together."""

from __future__ import annotations

import pytest

LONGEST = (
    "test_bare_debian",
    "test_clean_machine",
    "test_fresh_machine",
    "test_broker_container",
    "test_jobs",
    "test_relay",
    "test_lost_queues",
    "test_broker_named",
    "test_port_taken",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
