"""The model of Redis answers as the real one: programs of the relay's commands, run on both."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from osrdyne_relay import RedisRefused
from osrdyne_relay.redis.client import RedisClient
from osrdyne_relay.redis.port import Command
from osrdyne_relay.redis.transactions import COMMANDS
from simulation.relay.model import Model
from testbed.redis import RedisServer
from tests.relay.nodes import settings

#: One slot, few keys and fields: so that programs meet what they did before.
KEYS = ("t:{e}:a", "t:{e}:b", "t:{e}:c")
WORDS: tuple[bytes, ...] = (b"", b"x", b"\0\xff\r\n", b"y" * 100)


def command(chance: random.Random, *, last: bool = True) -> Command:
    """One command with arguments.

    Only the last of a transaction may let a key go soon. Redis before 7.2 looks at the clock twice in a PEXPIRE. Where
    a millisecond passes in between, the key is gone for the commands that follow.
    """
    key, field, word = chance.choice(KEYS), chance.choice(("f", "g")), chance.choice(WORDS)
    soon = 1 if last else 100_000
    made: dict[str, Command] = {
        "get": ("GET", key),
        "set": ("SET", key, word, *chance.choice(((), ("NX",))), "PX", chance.choice((soon, 100_000))),
        "hset": ("HSET", key, field, chance.choice((word, 7))),
        "hsetnx": ("HSETNX", key, field, word),
        "hmget": ("HMGET", key, "f", "g", "missing"),
        "hstrlen": ("HSTRLEN", key, field),
        "hdel": ("HDEL", key, "f", *(["g"] if chance.random() < 0.5 else [])),
        "rpush": ("RPUSH", key, word),
        "lrange": ("LRANGE", key, 0, chance.choice((0, 1, 15))),
        "lrem": ("LREM", key, 1, word),
        "pexpire": ("PEXPIRE", key, chance.choice((soon, soon, 100_000)), *chance.choice(((), ("NX",), ("GT",)))),
        "publish": ("PUBLISH", "t:unheard", word),
    }
    assert made.keys() == COMMANDS
    return made[chance.choice(sorted(made))]


async def outcome_on_redis(client: RedisClient, commands: list[Command]) -> Any:
    try:
        return await client.run(*commands)
    except RedisRefused as error:
        return "WRONGTYPE" in str(error)


def outcome_on_model(model: Model, commands: list[Command], now: float) -> Any:
    try:
        return model.transaction(tuple(commands), now)
    except RedisRefused as error:
        return "WRONGTYPE" in str(error)


def stays(seconds: float | None) -> str:
    return "ever" if seconds is None else "long"


@pytest.mark.parametrize("seed", range(3))
async def test_programs_have_the_same_answers_on_redis_and_on_the_model(seed: int, redis: RedisServer) -> None:
    chance, client, model, now = random.Random(f"program {seed}"), RedisClient(settings(redis).redis), Model(), 0.0
    for _ in range(100):
        commands = [command(chance, last=number == 1) for number in range(chance.choice((1, 1, 2, 5)), 0, -1)]
        if not any(command[0] != "PUBLISH" for command in commands):
            continue
        assert await outcome_on_redis(client, commands) == outcome_on_model(model, commands, now), commands
        # What stays for a millisecond is gone now, on both.
        await asyncio.sleep(0.003)
        now += 1.0
        if chance.random() < 0.03:
            model.flush()
            redis.run("FLUSHALL")
        left = {key: stays(seconds) for key, seconds in model.stays(now).items()}
        (keys,) = await client.run(("KEYS", "*"))
        real = {key: (await client.run(("PTTL", key)))[0] for key in keys}
        assert {key: "ever" if ms == -1 else "long" for key, ms in real.items()} == left
    await client.close()


def test_the_programs_are_not_all_refused() -> None:
    outcomes = []
    for seed in range(4):
        chance, model = random.Random(f"program {seed}"), Model()
        outcomes += [outcome_on_model(model, [command(chance)], float(n)) for n in range(150)]

    assert 30 < sum(outcome is True for outcome in outcomes) < 300
    assert len({repr(outcome) for outcome in outcomes}) > 15
