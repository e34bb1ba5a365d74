"""A client of oslo.messaging: it calls `METHOD` of `TOPIC` with `NAME=TEXT...`, and prints the answer or the error.

Words of the command line: the address of a router, topic, method, arguments.
"""

from __future__ import annotations

import os
import sys
import warnings

import oslo_messaging
from oslo_config import cfg


def main(address: str, topic: str, method: str, *given: str) -> None:
    warnings.simplefilter("ignore")  # the driver, which is deprecated, warns at every request
    cfg.CONF([])
    transport = oslo_messaging.get_rpc_transport(cfg.CONF, url=address)
    client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic=topic), timeout=30)
    try:
        print(client.call({}, method, **dict(word.split("=", 1) for word in given)))
    except Exception as error:  # noqa: BLE001 - it raises the classes of Python itself as what they are
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    transport.cleanup()
    sys.stdout.flush()
    os._exit(0)  # what it leaves behind holds up the end of a process for ten seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
