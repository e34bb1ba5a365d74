"""The sockets of a server."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import hosts

MOST_PORT = 65_535
#: Most connections that wait to be accepted.
BACKLOG = 1024
#: Of an address that a name has and this machine has not: that of IPv6 where it is switched off, for example.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class CannotListen(OsrdyneError):
    """An address cannot be listened on. `reason` says why, without the address and what to do."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def listen(host: str, port: int, *, others_need: str | None = None) -> list[socket.socket]:
    """Return sockets that listen, one for each address that `host` means.

    `port`: 0 lets the system choose one. `others_need`: what the server must have before other machines may reach it,
    as "set a token"; where it is given, only loopback addresses are listened on.

    Raises CannotListen.
    """
    if not 0 <= port <= MOST_PORT:  # the system would take the rest of a division
        raise CannotListen(f"{port} is not a port: choose one from 1 to {MOST_PORT}, or 0 for any", "no port")
    with ExitStack() as opened:
        try:
            asked = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            found = dict.fromkeys(asked)
            # The address, not the name: that may mean another machine.
            if others_need is not None and not all(hosts.is_loopback(str(entry[4][0])) for entry in found):
                reason = "can be reached from other machines"
                raise CannotListen(f"{host} {reason}: {others_need}, or listen on 127.0.0.1", reason)
            made: list[socket.socket] = []
            missing: OSError | None = None
            for family, *_, where in found:
                # One port for all of them, also where the system chooses.
                there = (where[0], made[0].getsockname()[1] if made else port, *where[2:])
                both = family == socket.AF_INET6 and len(found) == 1 and socket.has_dualstack_ipv6()
                try:
                    one = socket.create_server(there, family=family, backlog=BACKLOG, dualstack_ipv6=both)
                    made.append(opened.enter_context(one))
                except OSError as error:
                    if error.errno not in _NOT_HERE:
                        raise
                    missing = error
            if missing is not None and not made:
                raise missing
        except UnicodeError:
            reason = "is not a name"
            raise CannotListen(f"cannot listen on {host!r}, port {port}: it {reason}; choose another", reason) from None
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while attempting")[0]  # which says the address again
            text = f"cannot listen on {host}, port {port}: {reason}; choose another address or port"
            raise CannotListen(text, reason) from error
        opened.pop_all()
    return made


def address(listener: socket.socket, scheme: str = "http") -> str:
    """Return the address of a socket that listens, as a client names it."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
