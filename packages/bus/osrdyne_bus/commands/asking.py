"""Asks the bus itself and servers of topics, and says what came back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from osrdyne_bus.errors import MessagingError
from osrdyne_bus.server_status import NAMESPACE, PING, VERSION, ServerStatus
from osrdyne_bus.targets import Target
from osrdyne_calls.errors import RemoteError

if TYPE_CHECKING:
    from osrdyne_bus.aio import AsyncBus

#: How a router has to deliver what is for all servers.
MULTICAST = "multicast"
#: What is found of a bus or of a server, as `--json` has it. Where it has an `error`, there was no answer.
Found = dict[str, Any]


async def ask_bus(bus: AsyncBus, timeout: float) -> Found:
    """Send a message to the bus itself, and say how long it took."""
    began = time.monotonic()
    problem: Found = {}
    try:
        await bus.ping(timeout)
    except MessagingError as error:
        problem = {"error": str(error)}
    took = {} if problem else {"seconds": round(time.monotonic() - began, 6)}
    return {"peer": bus.peer, "product": bus.product, "addressing": bus.addressing, **took, **problem}


async def ask_fanouts(bus: AsyncBus, target: Target, timeout: float) -> Found:
    """Ask a router whether fanouts reach all servers; nothing where the peer is none, or does not say it."""
    how = await bus.fanouts(target, timeout)
    if how is None or how == MULTICAST:
        return {} if how is None else {"distribution": how}
    wrong = f"fanouts reach one server, and not all: {bus.peer} has their addresses as {how}; configure them as"
    return {"distribution": how, "error": f"{wrong} {MULTICAST} (docs/howto/bus-peers.md)"}


async def ask_server(bus: AsyncBus, target: Target, timeout: float) -> Found:
    """Ask a server of a target, and say what it says of itself."""
    from osrdyne_bus.aio import AsyncBusClient

    asked: Found = {"exchange": target.exchange, "topic": target.topic}
    if target.server is not None:
        asked["server"] = target.server
    began = time.monotonic()
    try:
        reply = await AsyncBusClient(bus, namespace=NAMESPACE, version=VERSION).call(target, PING, timeout=timeout)
        took = time.monotonic() - began
        status = ServerStatus.from_json(reply.body)
    except (MessagingError, RemoteError, ValueError) as error:
        return {**asked, "error": str(error)}
    return {**asked, "seconds": round(took, 6), **{name: getattr(status, name) for name in status.__slots__}}


def bus_line(found: Found) -> str:
    """Return what was found of the bus, for a person."""
    at = f"{found['peer']} ({found['product'] or 'it does not say what it is'}, addressing {found['addressing']})"
    if "error" in found:
        return f"no answer by way of {at if found['peer'] else 'the peer'}: {found['error']}"
    return f"answer by way of {at} in {_milliseconds(found)}"


def server_line(found: Found) -> str:
    """Return what was found of a server, for a person."""
    asked = found["topic"] if found["exchange"] == "osrdyne" else f"{found['topic']} of {found['exchange']}"
    if "error" in found:
        return f"{asked}: no answer: {found['error']}"
    work = f"{found['running']} of {found['concurrency']} handlers run, {found['waiting']} requests wait"
    lost = f", {found['lost_replies']} replies lost" if found["lost_replies"] else ""
    serves = "; ".join(found["endpoints"])
    at = f"{found['server']} ({found['host']}, process {found['process']})"
    return f"{asked}: {at} in {_milliseconds(found)}: {work}{lost}; serves {serves}"


def _milliseconds(found: Found) -> str:
    return f"{found['seconds'] * 1000:.1f} ms"
