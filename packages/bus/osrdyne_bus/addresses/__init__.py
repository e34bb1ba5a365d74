"""What targets are called on the wire, by kind of peer.

`schemes` has the interface and what all share. `routable` is for routers, `brokered` for Artemis and its like, `qpid`
for Qpid Broker-J, and `rabbitmq` for RabbitMQ from 4.0. `choosing` finds the scheme for a peer. A reply address is none
of these: the peer names it when a client attaches to it.
"""

from osrdyne_bus.addresses.brokered import Brokered
from osrdyne_bus.addresses.choosing import DYNAMIC, SCHEMES, name_of, scheme_for
from osrdyne_bus.addresses.qpid import Qpid
from osrdyne_bus.addresses.rabbitmq import RabbitMQ
from osrdyne_bus.addresses.routable import ROOT, Routable
from osrdyne_bus.addresses.schemes import Scheme

__all__ = [
    "Brokered",
    "DYNAMIC",
    "Qpid",
    "RabbitMQ",
    "ROOT",
    "Routable",
    "SCHEMES",
    "Scheme",
    "name_of",
    "scheme_for",
]
