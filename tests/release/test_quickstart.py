"""The quickstart, with packages from an index in place of the checkout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.distributions import Environment
from tests.broker.test_readme import README, Shell, blocks, daemon_log, shell, without_numbers
from tests.release.conftest import Index

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
__all__ = ["daemon_log", "shell"]


@pytest.fixture
def programs(index: Index, empty: Callable[[str], Environment]) -> Path:
    made = empty(sys.executable)
    index.fill(made, "osrdyne[status]")
    return Path(made.program("osrdyne")).parent


def test_client_worker_and_daemon_from_an_index_answer_as_the_readme_shows(shell: Shell, daemon_log: Path) -> None:
    assert without_numbers(shell.run("python core/client.py")) in [
        without_numbers(block) for block in blocks(README, "text")
    ]
    assert daemon_log.read_text().count("worker started") == 1
