"""The model as a bench for programs."""

from __future__ import annotations

import random
from typing import Any

from osrdyne.errors import ManagementError
from osrdyne_amqp import Connection
from osrdyne_pool.broker import quorum
from osrdyne_pool.topology import Exchange as DeclaredExchange
from osrdyne_pool.topology import Permission, Policy, Topology
from simulation.model.broker import ModelBroker, Version
from simulation.model.timing import Timing

_ADMIN = "admin"


class ModelBench:
    """A model broker with an administrator. Statistics are as quick as on the real brokers of the tests."""

    def __init__(self, version: Version, seed: int = 1) -> None:
        self.version = version
        self.broker = ModelBroker(random.Random(seed), version=version, timing=Timing(statistics_interval=0.5))
        self.broker.grant(Permission(_ADMIN, ".*", ".*", ".*"))
        self._management = self.broker.management()
        self._opened = 0

    async def open(self, user: str = "") -> Connection:
        self._opened += 1
        return await self.broker.open(f"amqp://{user or _ADMIN}:x@model/", name=f"c{self._opened}")

    async def exchange(self, name: str, kind: str = "direct") -> None:
        self.broker.apply(Topology((DeclaredExchange(name, kind),), (), (), ()))

    async def policy(self, name: str, pattern: str, apply_to: Any, **definition: Any) -> None:
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        self.broker.put_policy(Policy(name, pattern, apply_to, named))

    async def no_policy(self, name: str) -> None:
        self.broker.remove_policy(name)

    async def delete_queue(self, name: str) -> None:
        self.broker.delete_queue(name)

    async def permit(self, user: str, configure: str, write: str, read: str) -> None:
        self.broker.grant(Permission(user, configure, write, read))

    async def totals(self, queue: str) -> tuple[int, int, int] | None:
        try:
            found = await self._management.totals(queue)
        except ManagementError:
            return None
        if found is None:
            return None
        return found.ready, found.unacknowledged, found.ready + found.unacknowledged + found.dead_lettering

    async def counted_queues(self) -> list[str]:
        rows = await self._management._ask("queues/%2F", {})
        return sorted(row["name"] for row in rows if "messages" in row)

    async def restart(self) -> None:
        self.broker.stop()
        self.broker.start()

    async def lose(self, queue: str) -> None:
        self.broker.lose(queue)

    async def never_led(self, queue: str) -> bool | None:
        members = await self._management.members(queue)
        return None if members is None else quorum.never_led(members)

    async def alarm(self, on: bool) -> None:
        self.broker.alarm(on)
