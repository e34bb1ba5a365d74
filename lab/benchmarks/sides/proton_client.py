"""A client written by hand on proton's reactor: so many requests are out, and each reply sends the next."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from benchmarks.sides import turns


class Caller(MessagingHandler):  # type: ignore[misc]
    """Makes turns, for events that say how long and how many at once."""

    def __init__(self, turn_events: EventInjector) -> None:
        super().__init__(prefetch=200)
        self._turns = turn_events
        self._sender: Any = None
        self._waiting: set[int] = set()
        self._number = self._calls = 0
        self._until = 0.0
        self.ready, self.done = threading.Event(), threading.Event()

    def on_start(self, event: Any) -> None:
        event.container.selectable(self._turns)
        connection = event.container.connect(
            turns.uri(), virtual_host=f"vhost:{turns.options()['vhost']}", reconnect=False
        )
        self._sender = event.container.create_sender(connection, "/queues/proton")
        event.container.create_receiver(connection, "/queues/proton-replies")

    def on_sendable(self, event: Any) -> None:
        self.ready.set()

    def on_turn(self, event: Any) -> None:
        seconds, outstanding = event.subject
        self._calls, self._until = 0, time.monotonic() + seconds
        for _ in range(outstanding):
            self._send()

    def _send(self) -> None:
        self._number += 1
        self._waiting.add(self._number)
        self._sender.send(Message(id=self._number, reply_to="/queues/proton-replies", body=turns.BODY, inferred=True))

    def on_message(self, event: Any) -> None:
        reply = event.message
        turns.check(bytes(reply.body))
        self._waiting.remove(reply.correlation_id)
        self._calls += 1
        if time.monotonic() < self._until:
            self._send()
        elif not self._waiting:
            self.done.set()

    def turn(self, seconds: float, outstanding: int) -> tuple[int, float]:
        began = time.monotonic()
        self.done.clear()
        self._turns.trigger(ApplicationEvent("turn", subject=(seconds, outstanding)))
        self.done.wait()
        return self._calls, time.monotonic() - began


def main() -> None:
    events = EventInjector()
    caller = Caller(events)
    threading.Thread(target=Container(caller).run, daemon=True).start()
    caller.ready.wait()
    while line := sys.stdin.readline():
        seconds, outstanding = line.split()
        cpu = time.process_time()
        calls, took = caller.turn(float(seconds), int(outstanding))
        print(json.dumps({"calls": calls, "seconds": took, "cpu": time.process_time() - cpu}), flush=True)


if __name__ == "__main__":
    main()
