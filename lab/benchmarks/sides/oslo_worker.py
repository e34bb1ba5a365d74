"""A server of oslo.messaging that echoes, in threads: up to 64, its default."""

from __future__ import annotations

import sys

import oslo_messaging

from benchmarks.sides.oslo_transport import transport


class Echo:
    """The one endpoint."""

    def echo(self, _: object, body: str) -> str:
        return body


def main() -> None:
    target = oslo_messaging.Target(topic="bench", server="one")
    server = oslo_messaging.get_rpc_server(transport(), target, [Echo()], executor="threading")
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop()
    server.wait()


if __name__ == "__main__":
    main()
