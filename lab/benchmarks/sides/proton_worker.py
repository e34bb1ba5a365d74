"""A worker written by hand on proton's reactor."""

from __future__ import annotations

from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from benchmarks.sides import turns


class Echo(MessagingHandler):  # type: ignore[misc]
    """Answers each request to its reply address."""

    def __init__(self) -> None:
        super().__init__(prefetch=100)
        self.sender: Any = None

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            turns.uri(), virtual_host=f"vhost:{turns.options()['vhost']}", reconnect=False
        )
        self.sender = event.container.create_sender(connection, None)
        event.container.create_receiver(connection, "/queues/proton")

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver:
            print("ready", flush=True)

    def on_message(self, event: Any) -> None:
        request = event.message
        self.sender.send(
            Message(address=request.reply_to, correlation_id=request.id, body=bytes(request.body), inferred=True)
        )


if __name__ == "__main__":
    Container(Echo()).run()
