"""The settings of a bus, with their defaults. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from osrdyne_bus.addresses import DYNAMIC, ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Times are in seconds, and credit is in messages. Raises ValueError for what cannot work."""

    #: Which addresses targets get: `dynamic` goes by what the peer says of itself; see `addresses`.
    addressing: str = DYNAMIC
    #: How routable addresses begin: words with slashes between. Other roots keep buses on one mesh apart.
    root: str = ROOT
    #: Whether bodies are sent as text instead of bytes, for peers that want it: then they have to be UTF-8.
    text_bodies: bool = False
    #: Credit of the address that all replies to this connection come to.
    reply_credit: int = 200
    #: Credit of each of the three subscriptions of a server.
    server_credit: int = 100
    #: Credit of a subscription to notifications.
    notification_credit: int = 100
    #: How long a call, or a cast or fanout, takes at most where it gives no time itself.
    call_timeout: float = 30.0
    #: How long the start of a server or listener takes at most, or a subscription, where it gives no time itself.
    start_timeout: float = 30.0
    #: How long a reply waits for credit and for its acknowledgement; after that it is logged, and lost.
    reply_timeout: float = 10.0
    #: How long a notification waits for credit and for its acknowledgement.
    notification_timeout: float = 30.0
    #: How long the handlers of a server or listener that stops may go on.
    grace: float = 30.0
    #: How often a message that no receiver took is sent again, within its time. None: over a mesh of routers until its
    #: time is over, as a server that stops or a router gives it back so; and not at all over a broker.
    resends: int | None = None
    #: Whether one that a receiver had when it went is sent again likewise: it may be done twice then.
    resend_modified: bool = False
    #: After how long a sender link without use is dropped.
    unused_links: float = 600.0
    #: Calls that may wait for an answer at once; one more raises NoFreeSlot.
    slots: int = 1024

    def __post_init__(self) -> None:
        for name in ("reply_credit", "server_credit", "notification_credit", "slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give it 1 or more")
        for name in ("call_timeout", "start_timeout", "reply_timeout", "notification_timeout", "grace", "unused_links"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give it more than 0 seconds")
        if not re.fullmatch(r"[\w.~%-]+(/[\w.~%-]+)*", self.root, re.ASCII):
            raise ValueError(f"root is {self.root!r}; give it words of letters, digits and -._~% with slashes between")
        if self.resends is not None and self.resends < 0:
            raise ValueError(f"resends is {self.resends}; give it 0 or more")
