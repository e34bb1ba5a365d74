"""Fixtures of the drivers' tests: a test that takes `subject` or `owning` runs once for each such driver.

Tests of one driver follow each other in one process, which has that driver's engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.drivers.subjects import SUBJECTS
from tests.drivers.subjects.base import OwningSubject, Subject
from tests.drivers.subjects.docker import DockerSubject
from tests.drivers.subjects.kubernetes import KubernetesSubject
from tests.drivers.subjects.subprocess import SubprocessSubject
from tests.drivers.subjects.systemd import SystemdSubject

#: Drivers whose engine is this machine; the others' engines are slow to start.
OF_THIS_MACHINE = ("noop", "subprocess")


def of(subjects: list[type[Subject]]) -> list[Any]:
    return [pytest.param(subject, marks=marks(subject.name), id=subject.name) for subject in subjects]


def marks(driver: str) -> list[pytest.MarkDecorator]:
    """A driver's tests follow each other; `make test` has those that need no engine."""
    slow = [] if driver in OF_THIS_MACHINE else [pytest.mark.full]
    return [pytest.mark.xdist_group(driver), *slow]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the engines of the tests that were chosen, before any of these has its time limit."""
    if not session.config.option.collectonly:
        chosen = {mark.args[0] for item in session.items for mark in item.iter_markers("xdist_group") if mark.args}
        for each_subject in SUBJECTS:
            if each_subject.name in chosen:
                each_subject.prepare()


@pytest.fixture(scope="session")
def engine_of() -> Iterator[Callable[[type[Subject]], Any]]:
    """Gives the session's engine of a kind of subject, started when first asked for."""
    with contextlib.ExitStack() as stack:
        started: dict[type[Subject], Any] = {}

        def of_subject(subject: type[Subject]) -> Any:
            if subject not in started:
                started[subject] = stack.enter_context(subject.engine())
            return started[subject]

        yield of_subject


@pytest.fixture(params=of(list(SUBJECTS)))
async def subject(
    request: pytest.FixtureRequest, engine_of: Callable[[type[Subject]], Any], tmp_path: Path
) -> AsyncIterator[Subject]:
    """Every driver."""
    kind: type[Subject] = request.param
    made = kind(engine_of(kind), tmp_path)
    yield made
    await made.clean_up()


@pytest.fixture(params=of([subject for subject in SUBJECTS if subject.owns_workers]))
async def owning(
    request: pytest.FixtureRequest, engine_of: Callable[[type[Subject]], Any], tmp_path: Path
) -> AsyncIterator[OwningSubject]:
    """Every driver that starts and stops workers."""
    kind: type[Subject] = request.param
    made = cast(OwningSubject, kind(engine_of(kind), tmp_path))
    yield made
    await made.clean_up()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[SubprocessSubject]:
    """The subprocess driver's engine, for its own tests."""
    made = SubprocessSubject(None, tmp_path)
    yield made
    await made.clean_up()


@pytest.fixture
async def kube(engine_of: Callable[[type[Subject]], Any], tmp_path: Path) -> AsyncIterator[KubernetesSubject]:
    """The kubernetes driver's engine, for its own tests."""
    made = KubernetesSubject(engine_of(KubernetesSubject), tmp_path)
    yield made
    await made.clean_up()


@pytest.fixture
async def dockerd(engine_of: Callable[[type[Subject]], Any], tmp_path: Path) -> AsyncIterator[DockerSubject]:
    """The docker driver's engine, for its own tests."""
    made = DockerSubject(engine_of(DockerSubject), tmp_path)
    yield made
    await made.clean_up()


@pytest.fixture
async def units(engine_of: Callable[[type[Subject]], Any], tmp_path: Path) -> AsyncIterator[SystemdSubject]:
    """The systemd driver's engine, for its own tests."""
    made = SystemdSubject(engine_of(SystemdSubject), tmp_path)
    yield made
    await made.clean_up()
