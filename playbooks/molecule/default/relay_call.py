"""One call over the node of the relay on this machine, and a worker that polls there for it."""

from __future__ import annotations

import sys
import threading
from http.client import HTTPConnection, HTTPResponse

NODE = ("127.0.0.1", 8044)


def ask(client: str, path: str, body: bytes = b"") -> HTTPResponse:
    """Return the node's answer to a client."""
    connection = HTTPConnection(*NODE)
    connection.request("POST", path, body, {"Authorization": f"Bearer a-token-of-the-{client}"})
    return connection.getresponse()


def work() -> None:
    """Answer one request."""
    with ask("worker", "/v1/poll?endpoint=maps%2FLAX&wait=30") as polled:
        text = b"answer to " + polled.read()
        ask("worker", f"/v1/requests/{polled.headers['Relay-Request']}/response", text).close()


def main() -> None:
    """Prints the answer."""
    threading.Thread(target=work).start()
    with ask("caller", "/v1/call?endpoint=maps%2FLAX&timeout=30", b"hello") as answer:
        sys.stdout.write(answer.read().decode() + "\n")


if __name__ == "__main__":
    main()
