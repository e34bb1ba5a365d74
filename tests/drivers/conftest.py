"""Fixtures of the drivers' tests: a test that takes `subject` or `owning` runs once for each such driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.drivers.subjects import SUBJECTS, Owning, Subject, SubprocessSubject


@pytest.fixture(params=SUBJECTS, ids=lambda one: one.name)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    """Every driver."""
    made: Subject = request.param(tmp_path)
    yield made
    await made.clean_up()


@pytest.fixture(params=[one for one in SUBJECTS if one.owns_workers], ids=lambda one: one.name)
async def owning(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Owning]:
    """Every driver that starts and stops workers."""
    made: Owning = request.param(tmp_path)
    yield made
    await made.clean_up()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[SubprocessSubject]:
    """The subprocess driver's engine, for its own tests."""
    made = SubprocessSubject(tmp_path)
    yield made
    await made.clean_up()
