"""Which machine an address means, and which names a server without a password answers to. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection


def is_loopback(address: str) -> bool:
    """Return whether an address, or the name localhost, means this machine only."""
    found = _ip(address)
    return address.lower() == "localhost" if found is None else found.is_loopback


def may_name(header: str, allowed: Collection[str]) -> bool:
    """Return whether a request's Host header is one to answer: an IP address, localhost, one of `allowed`, or none.

    A page of another site can have its own name mean our address (DNS rebinding), and then read what we answer. It
    cannot have a browser send an address or another name in this header.
    """
    name = name_in(header).lower().removesuffix(".")
    return not header or _ip(name) is not None or name in {"localhost", *(host.lower() for host in allowed)}


def name_in(header: str) -> str:
    """Return a Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
