"""Commands of a program that may write to the relay's keys in Redis, and knows their names.

They are of the kinds that the relay's own user may send (docs/howto/relay-nodes.md), and a few that only another user
may.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from testbed.hostile.chance import SIZES

Command = tuple[str | bytes | int, ...]
_FIELDS = st.sampled_from(["request", "response", "claim", "caller", "server", "cancel", "over", "other"])


def commands(prefix: str, endpoint: str, calls: Sequence[str], nodes: Sequence[str]) -> st.SearchStrategy[Command]:
    """Commands about an endpoint: `calls` are ids of its calls, `nodes` those of nodes."""
    ids = st.sampled_from([*calls, *calls, "0" * 32, "f" * 32])
    base = f"{prefix}:{{{endpoint}}}"
    call = ids.map(lambda call_id: f"{base}:call:{call_id}")
    keys = call | st.sampled_from([f"{base}:waiting", f"{base}:life", f"{base}:polled"])
    channels = st.sampled_from([f"{base}:pulse", f"{base}:polled", *(f"{prefix}:node:{node}" for node in nodes)])
    values = _values(ids, endpoint, nodes)
    return st.one_of(
        st.tuples(st.just("RPUSH"), keys, values),
        st.tuples(st.just("PUBLISH"), channels, values),
        st.tuples(st.sampled_from(["HSET", "HSETNX"]), keys, _FIELDS, values),
        st.tuples(st.just("HDEL"), keys, _FIELDS),
        st.tuples(st.just("SET"), keys, values),
        st.tuples(st.just("LREM"), keys, st.just(0), values),
        st.tuples(st.just("PEXPIRE"), keys, st.sampled_from([-1, 0, 1, 10_000])),
        st.tuples(st.just("DEL"), keys),
    )


def strays(prefix: str, endpoint: str, nodes: Sequence[str]) -> st.SearchStrategy[Command]:
    """Commands that leave an endpoint and its calls what they are: ids of no call, calls of no caller, false pulses."""
    ids = st.uuids().map(lambda uuid: uuid.hex)
    base = f"{prefix}:{{{endpoint}}}"
    call = ids.map(lambda call_id: f"{base}:call:{call_id}")
    channels = st.sampled_from([f"{base}:pulse", f"{base}:polled", *(f"{prefix}:node:{node}" for node in nodes)])
    values = _values(ids, endpoint, nodes)
    return st.one_of(
        st.tuples(st.just("RPUSH"), st.just(f"{base}:waiting"), values),
        st.tuples(st.just("PUBLISH"), channels, values),
        st.tuples(st.sampled_from(["HSET", "HSETNX"]), call, _FIELDS, values),
        st.tuples(st.just("SET"), call, values),
        st.tuples(st.just("LREM"), st.just(f"{base}:waiting"), st.just(0), values),
    )


def _values(ids: st.SearchStrategy[str], endpoint: str, nodes: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Bytes that may look like ours: ids, tokens, pulses, records."""
    headers = st.tuples(ids, st.sampled_from([*nodes, "0" * 32])).map(
        lambda both: (
            b'{"id":"%s","endpoint":"%s","node":"%s","life":"%s"}'
            % (both[0].encode(), endpoint.encode(), both[1].encode(), both[0].encode())
        )
    ) | st.sampled_from([b"{}", b"[" * 1000, b'{"status":"ok"}', b'{"status":"cancelled","reason":3}', b"\xff", b"{"])
    records = st.tuples(headers, st.binary(max_size=40), st.sampled_from([0, 0, 0, 1, -1, 2**31])).map(
        lambda found: b"OR1" + ((len(found[0]) + found[2]) % 2**32).to_bytes(4) + found[0] + found[1]
    )
    return st.one_of(
        ids.map(lambda call_id: call_id.encode()),
        st.tuples(st.sampled_from([b"r", b"l", b"c", b"x"]), ids).map(lambda both: both[0] + both[1].encode()),
        st.tuples(ids, ids).map(lambda both: f"{both[0]}.{both[1]}".encode()),
        records,
        SIZES.map(bytes),
        st.binary(max_size=100),
    )
