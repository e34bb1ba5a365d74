"""What a client and a server say of each other's certificate, in memory."""

from __future__ import annotations

import ssl

from testbed.authority import Authority


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
