"""A server of oslo.messaging: the words of its command line are the address of a router, its topic and its name."""

from __future__ import annotations

import sys
import warnings

import oslo_messaging
from oslo_config import cfg


class Maps:
    """The one endpoint."""

    def find(self, _: object, name: str) -> str:
        return f"the map of {name}"

    def fail(self, _: object) -> None:
        raise LookupError("no such map")


def main(address: str, topic: str, name: str) -> None:
    warnings.simplefilter("ignore")
    cfg.CONF([])
    transport = oslo_messaging.get_rpc_transport(cfg.CONF, url=address)
    target = oslo_messaging.Target(topic=topic, server=name)
    server = oslo_messaging.get_rpc_server(transport, target, [Maps()], executor="threading")
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop()
    server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
