"""Serve callers of oslo.messaging over a mesh of routers, and call its servers.

`python -m examples.oslo_bus ADDRESS serve TOPIC SERVER` serves the method `find` until it is interrupted, and
`... ADDRESS call TOPIC METHOD NAME=TEXT...` prints an answer as JSON.

Its driver for AMQP 1.0 puts method and arguments into a body of JSON, as text. So all requests go to one handler here.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from osrdyne_bus import Target
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import MessagingError
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.threads import Bus, BusClient, BusServer
from osrdyne_protocol import foreign_json

#: The addresses of oslo.messaging, and bodies that it reads.
SETTINGS = BusSettings(addressing="routable", root="openstack.org/om", text_bodies=True)
#: What it takes for the exchange where a program names none.
EXCHANGE = "openstack"


class Failed(Exception):
    """The server answered with an error."""


def served(methods: Mapping[str, Callable[..., Any]]) -> Endpoint:
    """Return an endpoint that serves the methods for callers of oslo.messaging. A result is what JSON can hold."""

    def handle(request: BusRequest) -> bytes:
        asked = foreign_json.read(request.body)["request"]
        try:
            answer = {"response": methods[asked["method"]](**asked["args"])}
        except Exception as error:  # noqa: BLE001 - the caller gets it as its RemoteError
            said = {"class": type(error).__name__, "module": type(error).__module__, "message": str(error)}
            answer = {"failure": json.dumps({**said, "tb": [], "args": [], "kwargs": {}})}
        return json.dumps(answer).encode()

    endpoint = Endpoint()
    endpoint.add("", handle)  # its requests have no subject
    return endpoint


def call(client: BusClient, target: Target, method: str, timeout: float, **arguments: Any) -> Any:
    """Call a server of oslo.messaging, and return what its method returned. Raises Failed, and as `BusClient.call`."""
    question = {"request": {"method": method, "args": arguments}, "context": {}}
    reply = client.call(target, "", json.dumps(question).encode(), timeout=timeout)
    answer = foreign_json.read(reply.body)
    if "failure" in answer:
        failure = foreign_json.read(answer["failure"])
        raise Failed(f"{failure['class']}: {failure['message']}")
    return answer.get("response")


def find(name: str) -> str:
    return f"the map of {name}"


def main(address: str, what: str, topic: str, name: str, *given: str) -> None:
    with Bus(address, settings=SETTINGS) as bus:
        if what == "serve":
            with BusServer(bus, Target(topic, EXCHANGE, name), [served({"find": find})]):
                print("ready", flush=True)
                threading.Event().wait()
        arguments = dict(word.split("=", 1) for word in given)
        print(json.dumps(call(BusClient(bus), Target(topic, EXCHANGE), name, 10.0, **arguments)))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
    except (Failed, MessagingError) as error:
        sys.exit(str(error))
