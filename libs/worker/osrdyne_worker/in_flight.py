"""One request in a worker's hand. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from osrdyne_worker.handling import Outcome, Request
from osrdyne_worker.runners import Withdraw
from osrdyne_worker.session import Delivery


@dataclass(slots=True, eq=False)
class InFlight:
    """One request in hand."""

    request: Request
    delivery: Delivery
    started: float
    #: When an event last told of it; its start at first.
    last_told: float
    withdraw: Withdraw | None = None
    outcome: Outcome | None = None
    finished: float = 0.0
    #: How often the broker closed the channel of its reply.
    attempts: int = 0
    #: The broker took it back because it was held too long: what comes of its handler is of no use.
    given_up: bool = False

    def is_same(self, delivery: Delivery) -> bool:
        """Say whether a delivery is this request again."""
        mine, other = self.delivery.message, delivery.message
        return (
            mine.properties.correlation_id == other.properties.correlation_id
            and mine.properties.reply_to == other.properties.reply_to
            and mine.body == other.body
        )
