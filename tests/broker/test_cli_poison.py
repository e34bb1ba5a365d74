"""`osrdyne poison` on real brokers: looking changes nothing, sending again and burying lose nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne.commands.poison import command as poison_command
from osrdyne.commands.poison import inventory as poison_inventory
from osrdyne.commands.poison.entry import Entry, Selection
from osrdyne_amqp import Message
from osrdyne_pool.topology import request_queue_arguments
from testbed.broker import Broker
from testbed.command_line import CommandResult, osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import MINIMAL

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]


class Inventory:
    """A pool's inventory, and the command on it with the operator's rights."""

    def __init__(self, pool: Pool, directory: Path) -> None:
        self.pool = pool
        self.audit = directory / "audit.jsonl"
        self.uri = directory / "operator.uri"
        self.uri.write_text(pool.uri(pool.users.operator) + "\n")

    def words(self, command: str, *words: str) -> list[str]:
        audit = ["--audit", str(self.audit)] if command in ("replay", "bury") else []
        return ["poison", command, *words, "--pool", "core", "--broker-file", str(self.uri), *audit]

    def run(self, command: str, *words: str, stdin: bytes = b"") -> CommandResult:
        return osrdyne(*self.words(command, *words), stdin=stdin)

    def start(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "osrdyne.cli", *self.words(command, *words)]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def entries(self) -> list[dict[str, Any]]:
        done = self.run("list", "--json")
        assert (done.code, done.err) == (0, ""), done
        return list(json.loads(done.out)["entries"])

    def ids(self) -> list[str]:
        return [entry["id"] for entry in self.entries()]

    def keep(
        self,
        number: int,
        *,
        key: str = "42",
        body: bytes | None = None,
        headers: Mapping[str, Any] = MappingProxyType({}),
        confirmed: bool = True,
        **properties: Any,
    ) -> None:
        """Put entries in as the daemon does, numbered from 0 by body and correlation id."""
        with administrator(self.pool, confirm=confirmed) as channel:
            for place in range(number):
                given = {
                    "x-osrdyne-poison-id": f"{key}-{place}",
                    "x-osrdyne-poison-reason": "delivery_limit",
                    "x-osrdyne-poison-key": key,
                    "x-osrdyne-poison-time": 1_700_000_000_000 + place,
                    "x-osrdyne-poison-deliveries": 3,
                    **headers,
                }
                values = {"correlation_id": str(place), "delivery_mode": 2, **properties}
                entry = str(place).encode() if body is None else body
                whole = pika.BasicProperties(headers=given, **values)
                channel.basic_publish("", self.pool.names.poison_queue, entry, whole)
            if not confirmed:
                until(lambda: self.count(channel) == number, what="all entries")

    def count(self, channel: BlockingChannel) -> int:
        return int(channel.queue_declare(self.pool.names.poison_queue, passive=True).method.message_count)


@contextmanager
def administrator(pool: Pool, *, confirm: bool = True) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        channel = connection.channel()
        if confirm:
            channel.confirm_delivery()
        yield channel


@pytest.fixture
def inventory(make_pool: MakePool, tmp_path: Path) -> Inventory:
    return Inventory(make_pool(), tmp_path)


def served_by_hand(pool: Pool, key: str) -> str:
    """Make the request queue of a key, which has no consumer, and return its name."""
    queue = pool.names.request_queue(key)
    with administrator(pool) as channel:
        channel.queue_declare(queue, durable=True, arguments=request_queue_arguments(key))
        channel.queue_bind(queue, pool.names.request_exchange, key)
    return queue


def drained(pool: Pool, queue: str) -> list[tuple[Any, bytes]]:
    """Take everything out of a queue."""
    found: list[tuple[Any, bytes]] = []
    with administrator(pool) as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((properties, body))


@pytest.mark.both_versions
def test_a_list_consumes_nothing_and_entries_keep_their_order_and_ids(inventory: Inventory) -> None:
    assert inventory.run("list").out == b"the poison inventory is empty\n"
    inventory.keep(20)
    expected = [f"42-{number}" for number in range(20)]
    for _ in range(5):
        assert inventory.ids() == expected
    assert inventory.pool.depth(inventory.pool.names.poison_queue) == 20
    # And a person sees a row an entry
    table = inventory.run("list", "--key", "42").out.decode()
    assert all(text in table for text in ("42-7", "2023-11-14T22:13:20.007", "delivery_limit"))
    assert inventory.run("list", "--key", "43").out == b"the poison inventory is empty\n"


@pytest.mark.both_versions
def test_a_list_right_after_another_finds_what_that_one_gave_back(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given no patience that would hide it
    monkeypatch.setattr(poison_inventory, "_QUIET_SECONDS", 0.0)
    inventory.keep(1000)
    assert [len(inventory.ids()) for _ in range(6)] == [1000] * 6


@pytest.mark.full
@pytest.mark.both_versions
def test_an_inventory_larger_than_what_a_broker_sends_at_once_is_listed_and_buried_whole(
    inventory: Inventory,
) -> None:
    inventory.keep(2100)
    assert len(inventory.ids()) == 2100
    done = inventory.run("bury", "--all", "--yes", "--json")
    assert (done.code, len(json.loads(done.out)["buried"])) == (0, 2100)
    assert inventory.ids() == []


@pytest.mark.both_versions
async def test_what_is_taken_out_at_once_is_gone_for_good(inventory: Inventory) -> None:
    # Given so many acknowledgements in one go that a channel that closes right behind them drops some now and then
    async def nothing(_: Entry, __: Message) -> str | None:
        return None

    for _ in range(8):
        inventory.keep(600, confirmed=False)
        uri = inventory.uri.read_text().strip()
        connection = await poison_inventory.connected(uri, inventory.pool.names)
        async with poison_inventory.opened(connection, inventory.pool.names, who="a test", patience=10) as opened:
            assert len(await opened.take_out(Selection(everything=True), nothing)) == 600
        connection = await poison_inventory.connected(uri, inventory.pool.names)
        async with poison_inventory.opened(connection, inventory.pool.names, who="a test", patience=10) as opened:
            assert await opened.entries() == []


@pytest.mark.full
@pytest.mark.both_versions
async def test_what_was_taken_out_before_something_failed_is_gone_too(inventory: Inventory) -> None:
    async def fail_at_last(entry: Entry, _: Message) -> str | None:
        if entry.id == "42-500":
            raise OSError("no space left on device")
        return None

    uri = inventory.uri.read_text().strip()
    for _ in range(8):
        inventory.keep(600, confirmed=False)
        connection = await poison_inventory.connected(uri, inventory.pool.names)
        async with poison_inventory.opened(connection, inventory.pool.names, who="a test", patience=10) as opened:
            with pytest.raises(OSError, match="no space"):
                await opened.take_out(Selection(everything=True), fail_at_last)
        connection = await poison_inventory.connected(uri, inventory.pool.names)
        async with poison_inventory.opened(connection, inventory.pool.names, who="a test", patience=10) as opened:
            assert len(await opened.entries()) == 100
        with administrator(inventory.pool) as channel:
            channel.queue_purge(inventory.pool.names.poison_queue)


def test_a_command_waits_for_another_that_is_at_work_and_says_so_in_the_end(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory.keep(1)
    with pika.BlockingConnection(pika.URLParameters(inventory.uri.read_text().strip())) as connection:
        connection.channel().queue_declare(inventory.pool.names.poison_lock_queue, exclusive=True)
        monkeypatch.setattr(poison_command, "_LOCK_WAIT_SECONDS", 0.5)
        done = inventory.run("bury", "--all", "--yes")
        assert (done.code, done.line[:41]) == (2, "osrdyne: Another `osrdyne poison` command")
        monkeypatch.setattr(poison_command, "_LOCK_WAIT_SECONDS", 30.0)
        waiting = inventory.start("bury", "--all", "--yes")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=3)
    waiting.communicate(timeout=PATIENCE_SECONDS)
    assert (waiting.returncode, inventory.ids()) == (0, [])


def test_entries_without_an_identity_have_one_that_stays(inventory: Inventory) -> None:
    with administrator(inventory.pool) as channel:
        for body in (b"a", b"b"):
            channel.basic_publish("", inventory.pool.names.poison_queue, body)
    first = inventory.ids()
    assert len(set(first)) == 2
    assert inventory.ids() == first
    # And what cannot be sent again stays, and says why
    done = inventory.run("replay", first[0])
    assert (done.code, done.line) == (1, f"osrdyne: {first[0]} stays: its key is not known")
    assert inventory.ids() == first


@pytest.mark.both_versions
def test_entries_survive_a_restart_of_the_broker(private_broker: Broker, tmp_path: Path) -> None:
    private_broker.management.add_vhost("v", private_broker.admin)
    inventory = Inventory(Pool.on(private_broker, "v"), tmp_path)
    inventory.keep(3)
    before = inventory.entries()
    private_broker.restart()
    assert inventory.entries() == before


def test_show_prints_what_there_is_and_nothing_that_upsets_a_terminal(inventory: Inventory) -> None:
    inventory.keep(
        1,
        body=b"\x1b[2Jboo\nnext",
        reply_to="reply-1",
        headers={
            "mine": "\x1b]0;title",
            "x-osrdyne-poison-attempts": [{"x-worker-id": "w-1", "x-event-time": 1_700_000_000_000}],
            "x-death": [{"reason": "delivery_limit", "queue": "core-req-42", "count": 1}],
        },
    )
    done = inventory.run("show", "42-0")
    text = done.out.decode()
    assert done.code == 0
    assert "\x1b" not in text
    for line in (
        "reason: delivery_limit",
        "had it: 2023-11-14T22:13:20.000+00:00 w-1",
        "death: delivery_limit in core-req-42 at None, 1 times",
        "header mine: \\x1b]0;title",
        "  \\x1b[2Jboo",
        "  next",
    ):
        assert line in text.splitlines(), text
    shown = json.loads(inventory.run("show", "42-0", "--json").out)
    assert (shown["body"], shown["headers"]["mine"]) == ("\x1b[2Jboo\nnext", "\x1b]0;title")
    missing = inventory.run("show", "nothing")
    assert (missing.code, missing.out) == (1, b"")
    assert "no entry nothing" in missing.line


def test_a_replay_starts_a_cold_group_and_its_caller_is_answered(
    inventory: Inventory, make_daemon: MakeDaemon, make_client: Callable[[Pool], ForeignClient]
) -> None:
    pool = inventory.pool
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    # Given an entry of a caller that still waits: it was taken out of its queue by hand
    queue = served_by_hand(pool, "by hand")
    number = client.send("by hand", b"x")
    until(lambda: pool.depth(queue) == 1, what="the request")
    ((request, _),) = drained(pool, queue)
    inventory.keep(1, key="cold", correlation_id=number, reply_to=request.reply_to)
    assert daemon.key("cold") is None
    done = inventory.run("replay", "cold-0")
    assert (done.code, done.out) == (0, b"replayed cold-0 (key cold, delivery_limit)\n")
    assert client.wait(number)[0].body == b"cold|0"
    assert inventory.ids() == []


def test_a_replayed_request_is_as_new(inventory: Inventory) -> None:
    queue = served_by_hand(inventory.pool, "42")
    past = {"x-death": [{"reason": "expired"}], "x-osrdyne-hops": 12, "x-osrdyne-first-seen": 1, "x-deadline": 5}
    inventory.keep(1, headers={**past, "mine": "kept"}, reply_to="reply-1")
    assert inventory.run("replay", "--all", "--yes").code == 0
    until(lambda: inventory.pool.depth(queue) == 1, what="the request")
    ((properties, body),) = drained(inventory.pool, queue)
    assert (body, properties.reply_to, properties.correlation_id) == (b"0", "reply-1", "0")
    assert {name for name in properties.headers if name != "x-osrdyne-publish-id"} == {"mine"}
    # And a second time there is nothing
    again = inventory.run("replay", "42-0")
    assert (again.code, again.line) == (1, "osrdyne: no entry 42-0: replayed or buried already?")


def test_burying_leaves_a_line_in_the_audit_file_and_an_event(inventory: Inventory) -> None:
    inventory.keep(3)
    with administrator(inventory.pool) as channel:
        channel.queue_purge(inventory.pool.names.activity_queue)
    done = inventory.run("bury", "42-1", "--json")
    assert done.code == 0
    assert [entry["id"] for entry in json.loads(done.out)["buried"]] == ["42-1"]
    assert inventory.ids() == ["42-0", "42-2"]
    (line,) = map(json.loads, inventory.audit.read_text().splitlines())
    assert {name: line[name] for name in ("action", "pool", "id", "key", "reason", "request_id")} == {
        "action": "buried",
        "pool": "core",
        "id": "42-1",
        "key": "42",
        "reason": "delivery_limit",
        "request_id": "1",
    }
    assert line["who"]
    assert inventory.audit.stat().st_mode & 0o777 == 0o600
    until(lambda: inventory.pool.depth(inventory.pool.names.activity_queue) == 1, what="the event")
    ((event, _),) = drained(inventory.pool, inventory.pool.names.activity_queue)
    assert (event.headers["x-event"], event.headers["x-osrdyne-poison-id"]) == ("buried", "42-1")


def test_all_asks_first_and_an_audit_that_cannot_be_written_removes_nothing(inventory: Inventory) -> None:
    inventory.keep(3)
    assert inventory.run("bury", "--all", stdin=b"n\n").code == 1
    writable, inventory.audit = inventory.audit, Path("/proc/no/audit")
    unwritable = inventory.run("bury", "--all", "--yes")
    inventory.audit = writable
    assert unwritable.code == 2
    assert "name another one with --audit" in unwritable.line
    assert len(inventory.ids()) == 3
    assert inventory.run("bury", "--all", stdin=b"y\n").code == 0
    assert inventory.ids() == []


@pytest.mark.parametrize("words", [(), ("42-0", "--all"), ("--key", "42", "--all")])
def test_a_command_that_does_not_say_what_it_is_about_does_nothing(
    inventory: Inventory, words: tuple[str, ...]
) -> None:
    inventory.keep(1)
    done = inventory.run("bury", *words)
    assert (done.code, inventory.ids()) == (2, ["42-0"])


def test_two_commands_at_once_send_every_entry_once(inventory: Inventory) -> None:
    queue = served_by_hand(inventory.pool, "42")
    inventory.keep(300)
    commands = [inventory.start("replay", "--all", "--yes") for _ in range(2)]
    said = [command.communicate(timeout=PATIENCE_SECONDS)[1].decode() for command in commands]
    # One that the other keeps waiting for too long says so, and sends nothing
    gave_up = ["Another `osrdyne poison` command is at work" in errors for errors in said]
    assert [command.returncode for command in commands] == [2 if gave else 0 for gave in gave_up], said
    assert not all(gave_up)
    until(lambda: inventory.pool.depth(queue) == 300, what="the requests")
    assert Counter(int(body) for _, body in drained(inventory.pool, queue)) == Counter(range(300))
    assert inventory.ids() == []


@pytest.mark.both_versions
def test_a_command_that_is_killed_in_the_middle_loses_nothing_and_sends_at_most_one_twice(
    inventory: Inventory,
) -> None:
    queue = served_by_hand(inventory.pool, "42")
    inventory.keep(500)
    killed = inventory.start("replay", "--all", "--yes")
    until(lambda: (inventory.pool.depth(queue) or 0) > 20, every=0.005, what="some requests")
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=PATIENCE_SECONDS)
    assert 0 < len(inventory.ids()) < 500
    assert inventory.run("replay", "--all", "--yes").code == 0
    until(lambda: inventory.pool.depth(inventory.pool.names.poison_queue) == 0, what="an empty inventory")
    counts = Counter(int(body) for _, body in drained(inventory.pool, queue))
    assert set(counts) == set(range(500))
    assert sum(counts.values()) <= 501


def test_the_operator_can_do_no_more_than_this(inventory: Inventory) -> None:
    names = inventory.pool.names
    tries: list[Callable[[BlockingChannel], object]] = [
        partial(BlockingChannel.basic_get, queue=names.orphan_queue),
        partial(BlockingChannel.basic_get, queue=names.request_queue("42")),
        partial(BlockingChannel.queue_delete, queue=names.poison_queue),
        partial(BlockingChannel.basic_publish, exchange="", routing_key=names.poison_queue, body=b""),
        partial(BlockingChannel.basic_publish, exchange=names.dead_letter_exchange, routing_key="", body=b""),
    ]
    served_by_hand(inventory.pool, "42")
    for action in tries:
        with pika.BlockingConnection(pika.URLParameters(inventory.uri.read_text().strip())) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
                action(channel)


def test_a_user_that_may_not_read_the_inventory_gets_an_error_that_says_so(
    inventory: Inventory, tmp_path: Path
) -> None:
    file = tmp_path / "client.uri"
    file.write_text(inventory.pool.client_uri)
    done = osrdyne("poison", "list", "--pool", "core", "--broker-file", str(file))
    assert done.code == 2
    assert "ACCESS_REFUSED" in done.line
    assert "no pool is named" in osrdyne("poison", "list", "--broker-file", str(file)).line
