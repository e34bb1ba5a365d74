"""Who may ask: decides on each request by its method, path and headers, before the application sees it.

A program that knows the token may ask. A browser does not send it by itself, so pages of other sites cannot use it.

Without one, the address is a loopback one (`server`), and every program of this machine may ask. A browser is such a
program, and it also runs pages of other sites. Two rules keep those out:

- The `Host` header must name this machine. A page of evil.example whose name suddenly means 127.0.0.1 (DNS rebinding)
  counts as the same site for the browser, but its requests name evil.example there.
- What changes something must come as `application/json`, or by a method other than POST. A page of another site can
  send a form, but for these the browser first asks us for permission, which we never give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from osrdyne_jobs.errors import CannotServe
from osrdyne_jobs.http.problems import Refusal
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import hosts, log_lines
from osrdyne_runtime.serve import tokens
from osrdyne_runtime.serve.tokens import SHORTEST_TOKEN

log = log_lines.logger(__name__)

#: What a request must bring, or a function that returns the present one; None where nothing is needed.
Token = str | Callable[[], str] | None

#: What needs no token: whether the process lives, and the files of the page, which hold no data.
OPEN = frozenset({"/healthz", "/", "/page.js", "/page.css"})
#: Sent with every answer, beside those of all servers. The page runs only our own files; no other page may frame it.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}


def check_token(token: Token) -> None:
    """Raise CannotServe for what cannot be sent as a bearer token, or is easily guessed; and what a function raises."""
    if callable(token):
        token = token()
    if token is not None and not (len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise CannotServe(f"a token has at least {SHORTEST_TOKEN} characters, all of them printable ASCII")
    if token is not None and " " in token:
        raise CannotServe("a token has no blanks")


def refusal(method: str, path: str, headers: Mapping[str, str], token: str | None) -> Refusal | None:
    """Return why a request is not answered, or None. Names of headers are in lower case."""
    if token is None:
        if not hosts.is_loopback(hosts.name_in(headers.get("host", ""))):
            return Refusal(403, "without a token, only requests to localhost are answered; name it in the Host header")
    elif path not in OPEN and not tokens.shows(headers.get("authorization", ""), token):
        text = "this needs the administration's token, in the header `Authorization: Bearer TOKEN`"
        return Refusal(401, text, headers={"www-authenticate": "Bearer"})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != "application/json":
        return Refusal(415, "send it with the header `Content-Type: application/json`")
    return None


class TokenGuard:
    """Decides on each request, by the token that counts then."""

    def __init__(self, token: Token) -> None:
        """`token` is one that `check_token` takes. A function is called at each request."""
        self._asked = token if callable(token) else None
        self._token = token() if callable(token) else token
        #: Why a function could not be asked; None where it could.
        self._trouble: str | None = None

    def is_known(self, request: web.Request) -> bool:
        """Return whether the client of a request that is answered has shown the token. Raises Refusal."""
        token = self._present()
        if (refused := refusal(request.method, request.path, request.headers, token)) is not None:
            raise refused
        return token is None or request.path not in OPEN

    def _present(self) -> str | None:
        """Return the token: the last one that could be used, while the present one cannot."""
        if self._asked is not None:
            try:
                token = self._asked()
                check_token(token)
            except Exception as error:  # noqa: BLE001 - of a function of the user's; its text may have the token
                why = str(error) if isinstance(error, OSError | OsrdyneError) else type(error).__name__
                if why != self._trouble:
                    log.warning("the token cannot be read; the last one counts", extra={"reason": why})
                self._trouble = why
            else:
                self._token, self._trouble = token, None
        return self._token
