"""Fixtures of the relay's tests: a Redis that all tests share, one for a single test, and where data streams are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.redis import RedisServer
from testbed.s3.server import S3Server
from tests.relay.places import Bucket, Directory, Place


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """The server that all tests of a process share. A test takes `redis`, which empties it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis(shared_redis: RedisServer) -> RedisServer:
    """The shared server, empty. A test must not stop it."""
    shared_redis.run("FLUSHALL")
    return shared_redis


@pytest.fixture
def private_redis() -> Iterator[RedisServer]:
    """A server for one test, which may stop, kill and start it again."""
    with RedisServer() as own:
        yield own


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """The S3 server that all tests share, with one bucket. Each test has a prefix of its own."""
    with S3Server() as server:
        yield server


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.full)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where data streams are stored. A test runs once with a directory and once with a bucket."""
    if request.param == "s3":
        return Bucket(request.getfixturevalue("s3"))
    return Directory(tmp_path / "store")
