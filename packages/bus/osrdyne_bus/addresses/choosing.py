"""Which scheme a peer gets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from osrdyne_bus.addresses.brokered import Brokered
from osrdyne_bus.addresses.qpid import Qpid
from osrdyne_bus.addresses.rabbitmq import RabbitMQ
from osrdyne_bus.addresses.routable import ROOT, Routable
from osrdyne_bus.addresses.schemes import Scheme
from osrdyne_bus.errors import MessagingError

#: The setting that leaves the choice to what the peer says of itself.
DYNAMIC = "dynamic"
#: Schemes by what a setting calls them.
SCHEMES: Mapping[str, Callable[[], Scheme]] = {
    "routable": Routable,
    "brokered": Brokered,
    "rabbitmq": RabbitMQ,
    "qpid": Qpid,
}
#: Parts of a product's name, in lower case, by which a broker is known; anything else is taken for a router.
_BROKERS = {"rabbitmq": "rabbitmq", "artemis": "brokered", "broker-j": "qpid", "qpid-cpp": "brokered"}


def name_of(scheme: Scheme) -> str:
    """Return what a setting calls a scheme."""
    return next(name for name, kind in SCHEMES.items() if type(scheme) is kind)


def scheme_for(setting: str, properties: Mapping[object, object], root: str = ROOT) -> Scheme:
    """Return the scheme that a setting names; for `dynamic` that of the `product` in a peer's open frame.

    Routable addresses begin with `root`. They work with any peer that takes addresses as they are, so an unknown
    product gets them. Raises MessagingError for a setting that names no scheme.
    """
    if setting == DYNAMIC:
        product = str(properties.get("product", "")).lower()
        setting = next((scheme for part, scheme in _BROKERS.items() if part in product), "routable")
    if setting not in SCHEMES:
        raise MessagingError(f"there is no address scheme {setting!r}; there are {', '.join((DYNAMIC, *SCHEMES))}")
    made = SCHEMES[setting]()
    return Routable(root) if isinstance(made, Routable) else made
