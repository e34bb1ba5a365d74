"""Fixtures of lakes in an object store: a real S3 server a run, and a lake a test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from osrdyne_pipeline.store.lake import StoreLake
from testbed.s3.server import BUCKET, S3Server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, and an environment in which it is the store, with its credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_file.read_text().strip())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key_file.read_text().strip())
    return s3_server


@pytest.fixture
def root(s3: S3Server) -> str:
    """The address of a lake that is not there yet."""
    return f"s3a://{BUCKET}/some/lake-{next(_numbers)}"


@pytest.fixture
def stored(root: str) -> StoreLake:
    """A lake of the pool `core` without tables."""
    return StoreLake(root, "core")
