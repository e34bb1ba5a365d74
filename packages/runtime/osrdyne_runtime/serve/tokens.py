"""The token of a request: `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hmac

#: Fewest characters of a token.
SHORTEST_TOKEN = 16


def bearer(header: str) -> str | None:
    """Return the token that an Authorization header has; None where it has none of ours."""
    scheme, _, token = header.partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and len(token) >= SHORTEST_TOKEN else None


def shows(header: str, token: str) -> bool:
    """Return whether an Authorization header has this token, in a time that does not depend on how much is right."""
    return hmac.compare_digest((bearer(header) or "").encode(), token.encode())
