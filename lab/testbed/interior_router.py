"""Routers of a mesh for tests of the bus: skupper-router or qpid-dispatch, whichever the machine has.

Neither comes with a package of Debian or a registry that tests install from. So the variable OSRDYNE_ROUTER names the
command, `skrouterd` or `qdrouterd`, and without it there are no tests of it (tests/bus/on_peers/conftest.py).
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from testbed.kept_server import KeptServer

#: Names the command.
VARIABLE = "OSRDYNE_ROUTER"
#: What the bus needs of a router, and a port each for clients and routers; see docs/howto/bus-peers.md.
CONFIGURATION = """\
router {{
    mode: interior
    id: {name}
}}
listener {{
    host: 127.0.0.1
    port: {port}
    role: normal
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
listener {{
    host: 127.0.0.1
    port: {inner}
    role: inter-router
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
address {{
    prefix: osrdyne/bus/rpc/multicast
    distribution: multicast
}}
address {{
    prefix: osrdyne/bus
    distribution: balanced
}}
"""
CONNECTOR = """\
connector {{
    host: 127.0.0.1
    port: {inner}
    role: inter-router
    saslMechanisms: ANONYMOUS
}}
"""


class InteriorRouter(KeptServer):
    """One router, which may connect to others."""

    def __init__(self, name: str, *, to: Sequence[InteriorRouter] = ()) -> None:
        super().__init__("router")
        self._name = name
        self._to = tuple(to)
        self._inner = self.port + 1

    def command(self) -> list[str]:
        file = self.directory / "router.conf"
        text = CONFIGURATION.format(name=self._name, port=self.port, inner=self._inner)
        text += "".join(CONNECTOR.format(inner=other._inner) for other in self._to)
        file.write_text(text)
        return [*shlex.split(os.environ[VARIABLE]), "-c", str(file)]

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def full_mesh(names: str) -> Iterator[dict[str, InteriorRouter]]:
    """Routers with names of one letter, each connected to each other. They may not know each other yet."""
    with ExitStack() as stack:
        made: dict[str, InteriorRouter] = {}
        for name in names:
            made[name] = stack.enter_context(InteriorRouter(name, to=list(made.values())))
        yield made
