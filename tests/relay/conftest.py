"""Fixtures of the relay's tests: a Redis a run or a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.redis import RedisServer


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """The run's server: see `redis`."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis(shared_redis: RedisServer) -> RedisServer:
    """The run's server, empty: do not stop it."""
    shared_redis.run("FLUSHALL")
    return shared_redis


@pytest.fixture
def private_redis() -> Iterator[RedisServer]:
    """A server of the test's own, which it may stop, kill and start again."""
    with RedisServer() as own:
        yield own
