"""Each command that asks a broker or a daemon, where that stands still or is in an alarm: it ends in its time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from osrdyne.commands import status
from osrdyne_jobs.commands import create
from osrdyne_jobs.database.engines import engine_for, migrate
from osrdyne_pipeline.source import consumer
from testbed.broker import Broker
from testbed.command_line import CommandResult, osrdyne
from testbed.in_time import Late, seconds_of
from testbed.peer import make_request_queue
from testbed.pool import DaemonProcess, Pool
from tests.broker.test_cli_poison import Inventory
from tests.broker.test_waits import ill
from tests.unit.runtime.commands_on_peers import (
    BROKER,
    DAEMON,
    MANAGEMENT,
    SHORT_SECONDS,
    WAITS,
    Addresses,
    run_in_time,
    write_files,
)

pytestmark = pytest.mark.full

BLOCKED = r"takes no messages in its alarm \(low on disk"


@dataclass(frozen=True)
class ExpectedEnd:
    """How a command ends in an alarm, and what it says."""

    code: int
    text: str
    seconds: float = SHORT_SECONDS


#: Those that publish, and those that only ask: the broker answers these in an alarm. `dev` runs until Ctrl-C.
IN_AN_ALARM = {
    # The broker takes the first message of a connection, and confirms it.
    "call": ExpectedEnd(1, r"is in an alarm \(low on disk\)"),
    "call (cast)": ExpectedEnd(0, ""),
    "jobs create (broker)": ExpectedEnd(0, rf"is registered; redo casts it \(.*{BLOCKED}"),
    "lint": ExpectedEnd(0, ""),
    "pipeline ingest": ExpectedEnd(0, "0 new events"),
    "pipeline run": ExpectedEnd(0, "0 new events"),
    "poison list": ExpectedEnd(0, "42-0"),
    "poison show": ExpectedEnd(1, "1"),
    # There is no such entry.
    "poison bury": ExpectedEnd(1, "1"),
    # Its connection, and so its lock, stays until the broker sends it two heartbeats in vain.
    "poison replay": ExpectedEnd(2, BLOCKED),
    "pool apply": ExpectedEnd(0, ""),
    "pool diff": ExpectedEnd(0, ""),
    "pool remove": ExpectedEnd(2, "messages would be lost"),
}

#: Those that have more to do than to wait: they take that long on a broker that is well, too.
AT_WORK = ("lint", "pool apply", "pool diff", "pool remove", "pipeline ingest", "pipeline run")


def addresses_of(pool: Pool, folder: Path, url: str = "") -> Addresses:
    users, broker = pool.users, pool.broker
    management = broker.management_url.replace("//", f"//{broker.admin}:{broker.admin_password}@")
    return Addresses(
        broker.amqp_uri(vhost=pool.vhost),
        management,
        f"sqlite:///{folder}/jobs.sqlite",
        client=pool.client_uri,
        operator=pool.uri(users.operator),
        monitor=pool.uri(users.monitor),
        http=url,
    )


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have those that have no option for it wait for a second."""
    monkeypatch.setattr(status, "TIMEOUT_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(consumer, "CONNECT_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(create, "CAST_TIMEOUT_SECONDS", SHORT_SECONDS)


@pytest.fixture
def pool(private_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.chdir(tmp_path)
    made = Pool.on(private_broker, "/")
    write_files(tmp_path, addresses_of(made, tmp_path))
    migrate(engine_for((tmp_path / "sqlite").read_text()))
    return made


async def ended(command: str, folder: Path, addresses: Addresses, seconds: float) -> tuple[CommandResult, str]:
    done = await run_in_time(command, folder, addresses, seconds)
    assert "Traceback" not in done.err
    return done, done.out.decode() + done.err


async def test_each_command_on_a_broker_that_stands_still_says_so_in_time(
    pool: Pool, tmp_path: Path, private_broker: Broker
) -> None:
    wrong = []
    async with ill(private_broker, "stopped"):
        for command, waits in WAITS.items():
            if waits.peer in (BROKER, MANAGEMENT):
                done, text = await ended(command, tmp_path, addresses_of(pool, tmp_path), waits.seconds)
                if done.code != waits.code or not re.search(waits.says, text):
                    wrong.append(f"{command}: {done}")
    assert not wrong, "\n".join(wrong)


async def test_status_of_a_daemon_that_stands_still_says_so_in_time(
    pool: Pool, make_daemon: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    daemon = await asyncio.to_thread(make_daemon, pool)
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    process.suspend()
    try:
        done, text = await ended("status", tmp_path, addresses_of(pool, tmp_path, daemon.url), SHORT_SECONDS)
    finally:
        process.resume()
    assert (done.code, bool(re.search(WAITS["status"].says, text))) == (2, True), text
    assert WAITS["status"].peer == DAEMON


async def test_each_command_in_an_alarm_ends_in_its_time_and_says_what_it_waits_for(
    pool: Pool, tmp_path: Path, private_broker: Broker
) -> None:
    assert {*IN_AN_ALARM, "dev"} == {name for name, waits in WAITS.items() if waits.peer in (BROKER, MANAGEMENT)}
    await make_request_queue(pool, "42")
    Inventory(pool, tmp_path).keep(1)
    addresses, wrong, takes = addresses_of(pool, tmp_path), [], {}
    for command in AT_WORK:
        words, variables = WAITS[command].line(command, tmp_path, addresses)
        takes[command] = await asyncio.to_thread(seconds_of, partial(osrdyne, *words, variables=variables))
    async with ill(private_broker, "disk alarm"):
        for command, said in IN_AN_ALARM.items():
            seconds = said.seconds + takes.get(command, 0.0)
            try:
                done, text = await ended(command, tmp_path, addresses, seconds)
            except (TimeoutError, Late) as error:
                wrong.append(f"{command}: {error!r}")
                continue
            if done.code != said.code or not re.search(said.text, text):
                wrong.append(f"{command}: {done}")
    assert not wrong, "\n".join(wrong)


async def test_after_a_replay_that_an_alarm_stopped_the_next_command_has_the_inventory(
    pool: Pool, tmp_path: Path, private_broker: Broker
) -> None:
    await make_request_queue(pool, "42")
    Inventory(pool, tmp_path).keep(1)
    addresses = addresses_of(pool, tmp_path)
    async with ill(private_broker, "disk alarm"):
        stopped, text = await ended("poison replay", tmp_path, addresses, SHORT_SECONDS)
        assert (stopped.code, bool(re.search(BLOCKED, text))) == (2, True), text
        # It has no time of its own, and waits for the lock as long as commands do
        listed = await asyncio.to_thread(osrdyne, "poison", "list", "--pool", "core", variables=addresses.of(BROKER))
    assert (listed.code, "42-0" in listed.out.decode()) == (0, True), listed
