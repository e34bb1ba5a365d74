"""Keys that come and go leave nothing behind in daemon and client. A million: `python -m simulation --soak 1000000`."""

from __future__ import annotations

import asyncio
import random

import pytest

from osrdyne.state.by_key import QueuesByKey
from osrdyne_amqp.channels.confirms import Confirms
from osrdyne_pool.topology import Permission
from simulation import virtual_time
from simulation.model import ModelBroker
from simulation.sizes import sizes
from simulation.soak import soak

_KEYS = 400
#: Virtual seconds, and how often the containers are counted in them: that is what takes its time.
_LENGTH, _SAMPLES = 900.0, 40


@pytest.mark.timeout(600)
def test_keys_that_come_and_go_leave_daemon_and_client_as_small_as_before() -> None:
    report = soak(_KEYS, _LENGTH, samples=_SAMPLES)
    assert list(report.findings()) == []
    assert sum(report.came_to.values()) == report.asked
    # What is asked beyond one request a key is for the steady key. It may serve some twice: connections are cut.
    assert report.served >= report.asked - _KEYS
    # Everything that may become of a request was there, and the containers of all parts were seen.
    assert set(report.came_to) >= {"ok", "given up", "expired", "rejected"}
    assert max(sample.live for sample in report.samples) > 1
    assert report.samples[-1].live == 0
    names = {name for sample in report.samples for name in sample.sizes}
    assert names >= {"QueuesByKey.data", "Slots._entries", "Confirms._pending", "Worker._in_hand", "KeyedLoop._busy"}


@pytest.mark.timeout(600)
@pytest.mark.full
@pytest.mark.parametrize(
    ("owner", "method", "attribute"), [(QueuesByKey, "forget", "data"), (Confirms, "_settle_one", "_pending")]
)
def test_what_is_never_forgotten_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, attribute: str
) -> None:
    original = getattr(owner, method)

    def forget_nothing(self: object, *arguments: object) -> None:
        kept = dict(getattr(self, attribute))
        original(self, *arguments)
        getattr(self, attribute).update(kept)

    monkeypatch.setattr(owner, method, forget_nothing)
    assert f"{owner.__name__}.{attribute}" in "\n".join(soak(_KEYS, _LENGTH, samples=_SAMPLES).findings())


def test_a_channel_forgets_consumers_that_have_ended() -> None:
    async def program() -> list[dict[str, int]]:
        broker = ModelBroker(random.Random(1))
        broker.grant(Permission("admin", ".*", ".*", ".*"))
        connection = await broker.open("amqp://admin:x@model/", name="client")
        channel = await connection.channel()
        found = []
        for _ in range(2):
            for _ in range(100):
                await channel.declare_queue("q")
                cancelled = asyncio.Event()
                for _ in range(2):
                    tag = await channel.consume("q", lambda _: None, on_cancel=cancelled.set, no_ack=True)
                await channel.cancel(tag)
                broker.delete_queue("q")
                await cancelled.wait()
            found.append(dict(sizes([channel])))
        return found

    few, many = virtual_time.run(1, program)
    assert few == many


async def test_callbacks_that_wait_are_counted_once_each() -> None:
    futures = [asyncio.get_running_loop().create_future() for _ in range(37)]
    for future in futures:
        future.add_done_callback(lambda _: None)

    assert sizes([futures])["Future._callbacks"] == 37
