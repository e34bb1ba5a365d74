"""An in-memory RabbitMQ with the rules that this project can notice, for deterministic simulation.

`ModelBroker.open` gives the real `osrdyne_amqp.Connection` (and through it real `Channel`s) over a wire
that is an object in this process instead of a socket; `ModelBroker.management()` stands for `ManagementApi`.
Time is the event loop's clock. What may vary (how long each step takes, the order of confirms, when statistics
are sampled) comes from the `random.Random` given in, and from nothing else. No I/O, no threads.

`objects` has queues, exchanges and policies, `broker` connections and faults; `contents` and `queue` hold messages;
`server` is the broker's half of connections and channels, `wire` and `client` the client's; `history` is the record of
all that happened. `programs` show that all of this is true: real brokers answer them alike.
"""

from simulation.model.broker import ModelBroker
from simulation.model.history import Event, History, QueueAtDeletion
from simulation.model.management import ModelManagement
from simulation.model.timing import ConfirmTiming, Timing

__all__ = ["ConfirmTiming", "Event", "History", "ModelBroker", "ModelManagement", "QueueAtDeletion", "Timing"]
