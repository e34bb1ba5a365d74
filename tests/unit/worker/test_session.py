"""What a worker's session makes of what the broker answers."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_amqp.errors import AccessRefused, BrokerError, NotFound
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker.session import WorkerSession


class AnsweringConnection:
    """A connection whose channels answer a passive declare with an error, or none."""

    def __init__(self, error: BrokerError | None) -> None:
        self._error = error

    async def channel(self, **_: Any) -> Any:
        return self

    async def declare_queue(self, _: str, *, passive: bool) -> None:
        assert passive
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("error", "has"),
    [
        (None, True),
        (NotFound("NOT_FOUND - no queue"), False),
        # RabbitMQ 4.3.0 does not answer a worker's user
        (AccessRefused("ACCESS_REFUSED - configure access to queue"), True),
    ],
)
async def test_a_queue_of_which_the_broker_says_nothing_may_be_there(error: BrokerError | None, has: bool) -> None:
    connection: Any = AnsweringConnection(error)
    environment = WorkerEnvironment("id", "42", "core", "core-req-42", "core-activity", "amqp://nowhere")
    assert await WorkerSession(environment, connection, connection, connection, 1).has_queue() is has
