"""Bytes from a broker that is none, or not in its right mind: the connection ends with a reason, or goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pika import spec

from osrdyne_amqp import Connection, Message
from osrdyne_amqp.address import virtual_host
from osrdyne_amqp.codec.frames import read_properties
from osrdyne_amqp.codec.table import MalformedTable, read_table
from osrdyne_amqp.codec.table_writing import write_table
from osrdyne_amqp.connecting import opening, tls
from osrdyne_amqp.errors import BrokerError, InvalidUri, TlsFailed, Unencodable
from testbed.hostile.chance import mutated
from testbed.suite import examples
from testbed.waiting import PATIENCE_SECONDS
from tests.broker.fake_broker import delivery, fake_broker, header_payload, method
from tests.security.arbitrary import FUZZ, PRINTABLE, VALUES

PROPERTIES = spec.BasicProperties(
    headers={"x-status": "ok", "n": {"l": [1, True, None, "é"], "d": 2**40}}, correlation_id="c", reply_to="r"
)
TABLE = write_table({"x-status": "ok", "n": {"l": [1, True, None, "é", b"\xff"], "d": 2**40}})


@FUZZ
@given(st.binary(max_size=200) | mutated(TABLE))
def test_a_table_is_read_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedTable):
        table, stop = read_table(data)
        assert 0 <= stop <= len(data)
        with contextlib.suppress(Unencodable):
            write_table(table)


@FUZZ
@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=4))
def test_any_table_is_written_and_read_back_or_refused(table: dict[str, Any]) -> None:
    with contextlib.suppress(Unencodable):
        data = write_table(table)
        _, stop = read_table(data)
        assert stop == len(data)


@FUZZ
@given(st.binary(max_size=200) | mutated(header_payload(PROPERTIES)))
def test_properties_are_read_or_malformed(data: bytes) -> None:
    for with_headers in (True, False):
        with contextlib.suppress(MalformedTable):
            read_properties(data, with_headers=with_headers)


@pytest.mark.parametrize("kind", ["A", "F"])
def test_a_table_nested_thousands_deep_exhausts_nothing_and_is_written_as_it_came(kind: str) -> None:
    name = b"\x01k" if kind == "F" else b""
    inner = b"V"
    for _ in range(5000):
        inner = kind.encode() + len(name + inner).to_bytes(4, "big") + name + inner
    field = b"\x01k" + inner
    data = len(field).to_bytes(4, "big") + field

    table, stop = read_table(data)

    assert stop == len(data)
    assert write_table(table) == data


def said(consumer_tag: str) -> st.SearchStrategy[bytes]:
    """What a broker says to a consumer on channel 1, in part wrong."""
    right = [
        delivery(1, consumer_tag, 1, header_payload(PROPERTIES)),
        method(1, spec.Basic.Ack(1, False)),
        method(1, spec.Basic.Return(312, "NO_ROUTE", "", "q")),
        method(1, spec.Basic.Cancel(consumer_tag)),
        method(0, spec.Connection.Blocked("memory")),
        method(1, spec.Channel.Close(404, "NOT_FOUND", 0, 0)),
        method(0, spec.Connection.Close(320, "CONNECTION_FORCED", 0, 0)),
    ]
    one = st.sampled_from(right).flatmap(lambda frame: st.just(frame) | mutated(frame)) | st.binary(max_size=50)
    return st.lists(one, min_size=1, max_size=4).map(b"".join)


def run_with(data: bytes) -> None:
    """Let a broker say this to a consumer and hang up: nothing may be left that runs, waits or was not caught."""

    async def consume() -> list[dict[str, Any]]:
        uncaught: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: uncaught.append(context))
        async with fake_broker() as broker:
            connection = await Connection.open(broker.uri, name="fuzz")
            channel = await connection.channel(confirm=True)
            seen: list[Message] = []
            with mock.patch.object(connection._wire, "new_consumer_tag", return_value="TAG"):
                await channel.consume("q", seen.append, on_cancel=lambda: None)
            pending = channel.publish("", "q", b"x")
            broker.send(data)
            broker.writers[-1].close()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert isinstance(await connection.wait_closed(), BrokerError)
                await asyncio.wait([pending])
            pending.exception()
            await connection.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left
        return uncaught

    assert asyncio.run(consume()) == []


@settings(FUZZ, max_examples=examples(300))
@given(data=said("TAG"))
def test_whatever_a_broker_says_the_connection_ends_with_a_reason_and_nothing_else_breaks(data: bytes) -> None:
    run_with(data)


@pytest.mark.parametrize("kind", [1, 2, 3], ids=["a method", "a content header", "a body"])
async def test_a_frame_of_gigabytes_ends_the_connection_before_it_is_kept(kind: int) -> None:
    async with fake_broker() as broker:
        connection = await Connection.open(broker.uri, name="test")
        broker.send(bytes([kind]) + b"\x00\x01" + (2**31).to_bytes(4, "big") + b"x" * 100)

        reason = await asyncio.wait_for(connection.wait_closed(), PATIENCE_SECONDS)

    assert isinstance(reason, BrokerError)
    assert "longer than was agreed" in str(reason)
    assert reason.code == 501
    await connection.close()


# --- addresses --------------------------------------------------------------------------------------------------------

SECRET = "Sup3rSecret"
ADDRESS = f"amqps://user:{SECRET}@host.example:5671/vhost?heartbeat=5&auth_mechanism=plain"


@FUZZ
@given(PRINTABLE | st.text(max_size=30) | mutated(ADDRESS.encode()).map(lambda data: data.decode("latin-1")))
def test_an_address_is_understood_or_refused_without_being_shown(uri: str) -> None:
    try:
        virtual_host(uri)
        tls.take(uri.partition("?")[2])
        where = opening.parameters(uri, "name", 5.0, 10.0)[1].where
    except (InvalidUri, TlsFailed) as error:
        where = str(error)
    if uri.count(SECRET) == 1 and f":{SECRET}@" in uri:
        assert SECRET not in where
