"""Fixtures that every folder of tests shares: real brokers of both versions, vhosts that isolate tests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.engines.broker import SUITES, Broker

# looptime asks for the main thread's event loop before every test, also before one that is not asynchronous.
# asyncio would then make a loop that nobody closes, which is a ResourceWarning, which is an error. Once a loop
# has been set, if only to None, asyncio makes none by itself.
asyncio.set_event_loop(None)


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
    """Gives the run's broker of a version, started when first asked for."""
    started: dict[str, Broker] = {}

    def broker_of(version: str) -> Broker:
        if version not in started:
            started[version] = Broker(version)
            started[version].start()
        return started[version]

    yield broker_of
    for broker in started.values():
        broker.close()


@pytest.fixture(scope="session", params=sorted(SUITES))
def broker_version(request: pytest.FixtureRequest) -> str:
    """Every test that uses a broker runs once a version."""
    return str(request.param)


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


@pytest.fixture(scope="module")
def module_vhost(broker: Broker) -> Iterator[Vhost]:
    """A vhost for all tests of a module."""
    yield from _vhost(broker)


@pytest.fixture
def private_broker(broker_version: str) -> Iterator[Broker]:
    """A broker of the test's own, which it may stop, kill and start again."""
    with Broker(broker_version) as own:
        yield own
