"""Remote calls and notifications over AMQP 1.0, through a broker or a mesh of routers.

    Routable().shared(Target("maps", exchange="flights"))  # osrdyne/bus/rpc/anycast/flights/maps

`aio` has the bus, its clients and servers for asyncio, and `threads` those for threads: docs/howto/bus.md. Both stand
on `engine`, which connects to a peer and needs the extra `proton`.

The rest is pure. Programs name the receivers of a message by `targets`, and `addresses` has what a peer calls these.
`endpoints` are what a server can be asked for, and `messages` how requests and replies look. `credit` is how many of
them a subscription lets its peer send. `peers` are addresses to connect to, and `logins` how to log in there.
`settings` and `errors` are as their names say. `counts` is what a bus has done, and `server_status` what a server says
of itself.

For operators, `metrics` exports figures to Prometheus, and `commands` are those of `osrdyne bus`.
"""

from osrdyne_bus.addresses import SCHEMES, Brokered, RabbitMQ, Routable, Scheme, scheme_for
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.errors import (
    BusClosed,
    ConnectFailed,
    DeliveryFailure,
    DeliveryRejected,
    InvalidTarget,
    LinkRefused,
    LoginRefused,
    MessageTooLarge,
    MessagingError,
    MessagingTimeout,
    OutcomeUnknown,
    PeerLost,
    RepliesLost,
    SendTimedOut,
    StartTimedOut,
    UnsendableMessage,
)
from osrdyne_bus.targets import Priority, Target

__all__ = [
    "Brokered",
    "BusClosed",
    "ConnectFailed",
    "CreditWindow",
    "DeliveryFailure",
    "DeliveryRejected",
    "InvalidTarget",
    "LinkRefused",
    "LoginRefused",
    "MessageTooLarge",
    "MessagingError",
    "MessagingTimeout",
    "OutcomeUnknown",
    "PeerLost",
    "Priority",
    "RabbitMQ",
    "RepliesLost",
    "Routable",
    "SCHEMES",
    "Scheme",
    "SendTimedOut",
    "StartTimedOut",
    "Target",
    "UnsendableMessage",
    "scheme_for",
]
