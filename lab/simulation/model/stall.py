"""A channel of the broker that waits for a queue, and does nothing else meanwhile.

So waits whatever a client asks of a quorum queue that the broker lost: a publish, a consume, a deletion.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from simulation.model.queue import Queue

#: Seconds after which the broker gives up to reach a lost queue, and that the deletion of one takes.
UNREACHED_SECONDS: Final = 65.0
DELETION_SECONDS: Final = 5.0
#: Publishes that may wait behind one channel (`credit_flow_default_credit`): with more, the broker does not read the
#: connection.
CREDIT: Final = 400

#: What is called, and with what.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Wait:
    """Answer of an operation that takes its time: the channel waits for a lost queue for so many seconds, or until the
    queue is deleted, and `then` answers.
    """

    seconds: float
    then: Callable[..., Any]
    queue: Queue
    #: It makes a difference that another channel deletes the queue.
    until_deleted: bool = True


@dataclass(slots=True, eq=False)
class Stall:
    """The state of a channel that waits."""

    queue: Queue
    #: What the channel does when it goes on.
    then: Callable[[], None]
    timer: asyncio.TimerHandle | None = None
    #: What has arrived since, and how many publishes are among it.
    behind: deque[Call] = field(default_factory=deque)
    publishes: int = 0

    @property
    def takes_more(self) -> bool:
        return self.publishes <= CREDIT
