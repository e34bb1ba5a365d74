"""A hostile peer as a process: it sends what it reads from its standard input, and prints how much the broker accepted.

It has the lowest priority: a peer on another machine would not take processor time from ours.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from testbed import ROOT
from testbed.hostile.sending import ask, send_frames, send_messages


@dataclass(frozen=True)
class Attack:
    """What one user of the broker sends at once: messages of AMQP 1.0, frames of AMQP 0-9-1, and requests of HTTP."""

    uri: str
    #: Messages of AMQP 1.0, each with its address.
    messages: list[tuple[str, bytes]]
    #: Bytes of AMQP 0-9-1.
    frames: list[bytes]
    #: The port of the daemon's status, and requests to it.
    status_port: int
    status_requests: list[bytes]

    def send(self) -> int:
        """Send all of it; return how many messages of AMQP 1.0 the broker accepted."""
        with ThreadPoolExecutor(2) as threads:
            accepted = threads.submit(send_messages, self.uri, self.messages)
            frames = threads.submit(send_frames, self.uri, self.frames)
            for request in self.status_requests:
                ask("127.0.0.1", self.status_port, request)
            frames.result()
            return accepted.result()


class Attacker:
    """The process. Use it with `with`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.attacker"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, attacks: list[Attack]) -> int:
        """Send these attacks at the same time. Return, when all is sent, how many messages the broker accepted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(attacks, self._process.stdin)
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def main() -> None:
    """Send until standard input ends."""
    os.nice(19)
    while True:
        try:
            attacks: list[Attack] = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
        except EOFError:
            return
        with ThreadPoolExecutor(len(attacks)) as threads:
            print(sum(threads.map(Attack.send, attacks)), flush=True)


if __name__ == "__main__":
    main()
