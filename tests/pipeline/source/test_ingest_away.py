"""Following a stream whose broker is away at the start: it is waited for. What else is wrong ends the run at once."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_pipeline import ingest
from osrdyne_pipeline.errors import BrokerAway, SourceError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.source import consumer, stream
from tests.unit.runtime.away_at_start import AFTER_SECONDS, AWAY_SECONDS, PLACE, assert_three_kinds_of_lines

ADDRESS = f"amqp://monitor:secret@{PLACE}/v"


class Stop:
    """The stop of a run. Who waits for it moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.now >= AWAY_SECONDS + AFTER_SECONDS

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """Follow a stream that is empty, where there is one."""
    made, bounds = Stop(), stream.bounds

    def late(uri: str, name: str) -> stream.Bounds | None:
        return bounds(uri, name) if made.now < AWAY_SECONDS else None

    monkeypatch.setattr(stream, "bounds", late)
    monkeypatch.setattr(ingest, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def run(lake: Lake, stop: Any, directory: Path, *, address: str = ADDRESS, follow: bool = True) -> None:
    file = directory / "uri"
    file.write_text(address)
    no_engine: Any = None
    ingest.ingest_stream(no_engine, lake, uri_file=str(file), follow=follow, stop=stop)


def test_a_run_that_follows_waits_for_its_broker_and_says_the_three_lines_of_an_outage(
    lake: Lake, stop: Stop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(lake, stop, tmp_path)

    assert_three_kinds_of_lines(caplog.records, {"the broker"})
    assert "secret" not in caplog.text


def test_a_run_that_does_not_follow_ends_at_once(lake: Lake, stop: Stop, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no connection"):
        run(lake, stop, tmp_path, follow=False)


def test_a_broker_that_takes_a_connection_and_says_nothing_is_away(
    lake: Lake, stop: Stop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"amqp://user:secret@127.0.0.1:{silent.getsockname()[1]}/v"
        with pytest.raises(BrokerAway, match=r"no AMQP answer within 0.1 s; check that this is the broker's AMQP port"):
            run(lake, stop, tmp_path, address=address, follow=False)


def test_an_address_that_cannot_be_read_ends_a_run_that_follows(lake: Lake, stop: Stop, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="amqp://user:password@host"):
        run(lake, stop, tmp_path, address="broker")
