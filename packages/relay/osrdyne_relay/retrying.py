"""Tries each transaction until Redis has answered, for `retry_for` seconds, and logs one line an outage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from osrdyne_protocol import log_lines
from osrdyne_relay.errors import RedisAway
from osrdyne_relay.port import Away, Command, RedisPort
from osrdyne_relay.time_rules import retry_pause

log = log_lines.logger(__name__)

#: A transaction, or what makes it for each attempt.
Commands = Sequence[Command] | Callable[[], Sequence[Command]]


class Outage:
    """Whether Redis answers this node, as its operations see it."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def away(self) -> bool:
        return self._since is not None

    def failed(self, reason: str, now: float) -> None:
        """Note an operation that failed."""
        if self._since is None:
            self._since = now
            log.warning("Redis is away; operations are tried again", extra={"reason": reason})

    def answered(self, now: float) -> None:
        """Note an operation that did not fail."""
        if self._since is not None:
            log.warning("Redis is back", extra={"seconds": round(now - self._since, 1)})
            self._since = None


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction that was executed."""

    answers: list[Any]
    #: Whether an earlier attempt may have been executed as well.
    maybe_before: bool


class Retrying:
    """Redis, with attempts."""

    def __init__(self, redis: RedisPort, retry_for: float) -> None:
        self._redis = redis
        self._retry_for = retry_for
        self.outage = Outage()

    async def run(self, commands: Commands, *, retry_for: float | None = None) -> Done:
        """Execute a transaction. Raises RedisAway after `retry_for` seconds of attempts, and RedisRefused at once.

        `commands`: also a function that makes them for each attempt, where no two attempts may be the same.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + (self._retry_for if retry_for is None else retry_for)
        failures, maybe_before = 0, False
        while True:
            try:
                answers = await self._redis.run(*(commands() if callable(commands) else commands))
            except Away as error:
                failures += 1
                maybe_before |= error.sent
                self.outage.failed(str(error), clock())
                pause = retry_pause(failures, random.random())
                if clock() + pause > deadline:
                    raise RedisAway(f"{RedisAway.__doc__} It says: {error}") from error
                await asyncio.sleep(pause)
            else:
                self.outage.answered(clock())
                return Done(answers, maybe_before)
