"""Fixtures of the relay's tests: a Redis a run or a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.redis import RedisServer
from testbed.s3.server import S3Server
from tests.relay.places import Bucket, Directory, Place


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


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """The run's S3 server, with one bucket: each test has a prefix of its own."""
    with S3Server() as server:
        yield server


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.full)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the streams of the test are: once in a directory, once in a bucket."""
    if request.param == "s3":
        return Bucket(request.getfixturevalue("s3"))
    return Directory(tmp_path / "store")
