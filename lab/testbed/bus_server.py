"""A server of the bus as a process of its own, which answers the method `work` with its name.

The variables BUS and SERVER are the address of the peer and the name. BEGUN is a file that gets the name of each server
whose handler begins. With HANGS the handler does not end.
"""

from __future__ import annotations

import os
import threading

from osrdyne_bus import Target
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.threads import Bus, BusServer

SERVER = os.environ["SERVER"]


def work(request: BusRequest) -> bytes:
    with open(os.environ["BEGUN"], "a", encoding="ascii") as begun:
        begun.write(f"{SERVER}\n")
    if "HANGS" in os.environ:
        threading.Event().wait()
    return SERVER.encode()


def main() -> None:
    endpoint = Endpoint()
    endpoint.add("work", work)
    with Bus(os.environ["BUS"]) as bus, BusServer(bus, Target("maps", server=SERVER), [endpoint], acknowledge="end"):
        threading.Event().wait()


if __name__ == "__main__":
    main()
