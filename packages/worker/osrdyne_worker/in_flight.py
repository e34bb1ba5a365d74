"""One request in a worker's hand. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from osrdyne_calls.handling import Outcome, Request
from osrdyne_calls.runners import Withdraw
from osrdyne_worker.session import Delivery


@dataclass(slots=True, eq=False)
class InFlight:
    """One request in hand. Times are seconds on the loop's clock."""

    request: Request
    delivery: Delivery
    #: When it was delivered; a suspect may be begun later.
    delivered_at: float
    started_at: float
    #: When an event last reported it; at first its start.
    last_reported_at: float
    #: Takes it back from the runner unless its handler has begun; None before it was given to the runner.
    withdraw: Withdraw | None = None
    #: None while it is worked on.
    outcome: Outcome | None = None
    finished_at: float = 0.0
    #: How often the broker closed the channel of its reply.
    closed_channels: int = 0
    #: The broker refused its reply at least once.
    refused: bool = False
    #: The broker took it back because it was held too long: its handler's result is not used.
    given_up: bool = False

    def is_same(self, delivery: Delivery) -> bool:
        """Return whether a delivery is this request again."""
        mine, other = self.delivery.message, delivery.message
        return (
            mine.properties.correlation_id == other.properties.correlation_id
            and mine.properties.reply_to == other.properties.reply_to
            and mine.body == other.body
        )
