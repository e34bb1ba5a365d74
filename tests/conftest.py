"""Fixtures that every folder of tests shares, real brokers among them, and what decides where a test runs."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

import noted
import run_tests
import tiers
from testbed.broker import DEMO_VERSION, NEWEST, SUITES, Broker, SharedBroker
from testbed.suite import in_make_test

# looptime asks for the main thread's event loop before every test, also before one that is not asynchronous.
# asyncio would then make a loop that is never closed, which is a ResourceWarning, which is an error. Once a loop
# has been set, if only to None, asyncio makes none by itself.
asyncio.set_event_loop(None)

# The same examples each time, and no limit on how long one takes, as where CI is set: on a busy machine a call of a
# millisecond may take a fifth of a second.
hypothesis.settings.register_profile(
    "osrdyne", hypothesis.settings.get_profile("ci"), max_examples=50 if in_make_test() else 100
)
hypothesis.settings.load_profile("osrdyne")


#: Fixtures of engines that `make test` does not start: slow to start or to build, or a broker that the test may stop.
SLOW_ENGINES = {
    "private_broker",
    *("dockerd", "units", "kube"),  # of the drivers
    *("postgres", "private_postgres"),  # of the jobs
    "s3",  # of the relay
    *("make_stack", "stack", "newest", "cluster"),  # of the Pulumi program
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=sorted(SUITES),
        help=f"RabbitMQ of all tests; without it {NEWEST}, and both versions for tests marked `both_versions`",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the engine that they ask for, before `-m` selects."""
    for item in items:
        if SLOW_ENGINES & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.full)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Have the collector leave out what lives as long as the run: modules, tests and their parameters.

    Else each module's `_left` walks all of them, a tenth of a second for all unit tests.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what a test logged and UTF-8 cannot have: pytest-xdist would end the run when it sends that."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


class GroupsFirst:
    """Has groups of tests start before single tests, which then fill the other processes up to the end.

    A group has an engine, and one process for all of it.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a broker on one version, and where the version makes a difference on both."""
    if "broker_version" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("broker")
    both = metafunc.definition.get_closest_marker("both_versions") is not None
    versions = [chosen] if chosen else sorted(SUITES) if both else [NEWEST]
    metafunc.parametrize("broker_version", versions, indirect=True, scope="session")


class Notes:
    """Notes which tests have begun, ended and failed, in the file that tools/run_tests.py names.

    It says how far a tier is, and runs tests that failed once more.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        noted.note(self._file, noted.BEGUN, nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        noted.note(self._file, noted.ENDED, nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            noted.note(self._file, noted.FAILED, report.nodeid)
        # The process of the test has crashed: pytest-xdist reports no end of it.
        if report.when not in ("setup", "call", "teardown"):
            noted.note(self._file, noted.ENDED, report.nodeid)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(GroupsFirst())
    # The process that gathers the reports of all others notes them, too.
    if (file := os.environ.get(noted.NOTES)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(file)))


@pytest.fixture(scope="module", autouse=True)
def _left() -> Iterator[None]:
    """Names what a module left at its own last test: what is open, and handlers of signals.

    Else it falls on whichever test runs when Python collects, or waits for a signal.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    gc.collect()
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Has SIGINT raise KeyboardInterrupt, also where a shell began the run in the background, and it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Vhost:
    """An empty vhost for one test (or module), on a broker that other tests use too: do not stop that
    broker.
    """

    broker: Broker
    name: str

    def amqp_uri(self, user: str | None = None, password: str | None = None) -> str:
        """URI of this vhost; without a user, as administrator."""
        return self.broker.amqp_uri(user or self.broker.admin, password, self.name)


@pytest.fixture(scope="session")
def brokers() -> Iterator[Callable[[str], Broker]]:
    """Gives the run's broker of a version: that of all tiers in `make test`, or one that is started when asked for."""
    started: dict[str, Broker] = {}
    if shared := os.environ.get(run_tests.SHARED_BROKER):
        started[tiers.ONE_BROKER] = SharedBroker(Path(shared))

    def broker_of(version: str) -> Broker:
        if version not in started:
            started[version] = Broker(version)
            started[version].start()
        return started[version]

    yield broker_of
    for broker in started.values():
        broker.close()


@pytest.fixture(scope="session")
def broker_version(request: pytest.FixtureRequest) -> str:
    """The version that a test runs on; see `pytest_generate_tests`."""
    return str(request.param)


@pytest.fixture(scope="session")
def one_version(request: pytest.FixtureRequest) -> str:
    """The version for what is made once, not once a version."""
    return str(request.config.getoption("broker") or NEWEST)


@pytest.fixture(scope="session")
def one_broker(one_version: str, brokers: Callable[[str], Broker]) -> Broker:
    """The run's shared broker of that version."""
    return brokers(one_version)


@pytest.fixture(scope="session")
def broker(brokers: Callable[[str], Broker], broker_version: str) -> Broker:
    """The run's shared broker of this version: do not stop it, do not change what other vhosts see."""
    return brokers(broker_version)


def _vhost(broker: Broker) -> Iterator[Vhost]:
    vhost = Vhost(broker, f"test-{secrets.token_hex(6)}")
    broker.management.add_vhost(vhost.name, broker.admin)
    yield vhost
    broker.management.delete("vhosts", vhost.name)


@pytest.fixture
def vhost(broker: Broker) -> Iterator[Vhost]:
    """A vhost for one test."""
    yield from _vhost(broker)


@pytest.fixture
def one_vhost(one_broker: Broker) -> Iterator[Vhost]:
    """A vhost for one test, on the one version."""
    yield from _vhost(one_broker)


@pytest.fixture
def losing_vhost(brokers: Callable[[str], Broker]) -> Iterator[Vhost]:
    """A vhost for one test, on the version that loses queues (lab/testbed/lost_queue.py), whatever `--broker` says.

    It is the one of `make test`.
    """
    yield from _vhost(brokers(DEMO_VERSION))


@pytest.fixture(scope="module")
def module_vhost(broker: Broker) -> Iterator[Vhost]:
    """A vhost for all tests of a module."""
    yield from _vhost(broker)


@pytest.fixture
def private_broker(broker_version: str) -> Iterator[Broker]:
    """A broker of the test's own, which it may stop, kill and start again."""
    with Broker(broker_version) as own:
        yield own
