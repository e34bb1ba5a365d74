"""A program's own certificate and key, as PEM files."""

from __future__ import annotations

import os
import ssl

_StrPath = str | os.PathLike[str]


def load(context: ssl.SSLContext, certificate: _StrPath, key: _StrPath | None = None) -> None:
    """Have a TLS context show a certificate. Its key is in `key`, or in the same file.

    Raises OSError, which says what is wrong and names no file. A key that needs a password is refused, because a
    service has no terminal to ask at.
    """
    try:
        # An empty password: otherwise OpenSSL asks at the terminal for that of an encrypted key, and waits.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError:
        raise OSError("no certificate and key in PEM that belong together and need no password") from None
