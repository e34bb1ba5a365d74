"""Tries each transaction until Redis has answered, for `retry_for` seconds, and logs outages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from osrdyne_relay.errors import RedisAway, RedisRefused
from osrdyne_relay.redis.port import Away, Command, RedisPort
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: First and longest pause between two attempts, in seconds.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0

#: A transaction, or what makes it for each attempt.
Commands = Sequence[Command] | Callable[[], Sequence[Command]]


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """A transaction that was executed."""

    answers: list[Any]
    #: Whether an earlier attempt may have been executed as well.
    maybe_before: bool


class RetryingRedis:
    """Redis, with attempts."""

    def __init__(self, redis: RedisPort, retry_for: float) -> None:
        self._redis = redis
        self._retry_for = retry_for
        self.outage = OutageLog(log, "Redis")

    async def ask(self) -> None:
        """Have Redis answer now, at the first attempt. Raises RedisAway or RedisRefused; either is an outage."""
        try:
            await self.run([("PING",)], retry_for=0.0)
        except RedisRefused as error:
            self.outage.failed(str(error), asyncio.get_running_loop().time())
            raise

    async def run(self, commands: Commands, *, retry_for: float | None = None) -> TransactionResult:
        """Execute a transaction. Raises RedisAway after `retry_for` seconds of attempts, and RedisRefused at once.

        `commands`: also a function that makes them for each attempt, where no two attempts may be the same.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (self._retry_for if retry_for is None else retry_for)
        retry, maybe_before = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS), False
        while True:
            try:
                answers = await self._redis.run(*(commands() if callable(commands) else commands))
            except Away as error:
                maybe_before |= error.sent
                self.outage.failed(str(error), clock())
                pause = retry.failed()
                if clock() + pause > deadline:
                    raise RedisAway(f"{RedisAway.__doc__} It says: {error}") from error
                await asyncio.sleep(pause)
            else:
                self.outage.over(clock())
                return TransactionResult(answers, maybe_before)
