"""What a client says of a server's certificate: in memory, and of a server that does nothing else."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from testbed.authority import Authority
from testbed.pem import Certificate


def strict(authority: Authority) -> ssl.SSLContext:
    """Return a client's context that trusts a CA and verifies as that of Python 3.13 and later does."""
    context = ssl.create_default_context(cafile=authority.cacertfile)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str = "127.0.0.1") -> None:
    """Let a client and a server agree. Raises ssl.SSLError as the side does that refuses the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)


@contextmanager
def listening(certificate: Certificate) -> Iterator[int]:
    """Listen at 127.0.0.1 with a certificate, and close each connection after the handshake; gives the port."""
    context = certificate.server_context()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, context))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            # It ends the wait for a connection, which closing does not.
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        # A client that refuses the certificate ends the handshake.
        with connection, suppress(OSError):
            context.wrap_socket(connection, server_side=True).close()
