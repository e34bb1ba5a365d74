"""Remote calls and notifications over AMQP 1.0, through a broker or a mesh of routers.

    Routable().shared(Target("maps", exchange="flights"))  # osrdyne/bus/rpc/anycast/flights/maps

Programs name the receivers of a message by `targets`, and `addresses` has what a peer calls these. `envelopes` are what
is sent, and `credit` is how many of them a subscription lets its peer send. `errors` has what is raised. All of it is
pure. `engine` connects to a peer, and needs the extra `proton`.
"""

from osrdyne_bus.addresses import SCHEMES, Brokered, RabbitMQ, Routable, Scheme, scheme_for
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.errors import InvalidTarget, MessagingError
from osrdyne_bus.targets import Priority, Target

__all__ = [
    "Brokered",
    "MessagingError",
    "CreditWindow",
    "InvalidTarget",
    "Priority",
    "RabbitMQ",
    "Routable",
    "SCHEMES",
    "Scheme",
    "Target",
    "scheme_for",
]
