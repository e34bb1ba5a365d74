"""Who may ask: decides on each request by its method, path and headers, before the application sees it.

With a token, whoever knows it may ask. A browser does not send it by itself, so pages of other sites cannot use it.

Without one, the address is a loopback one (`server`), and every program of this machine may ask. A browser is such a
program, and it also runs pages of other sites. Two rules keep those out:

- The `Host` header must name this machine. A page of evil.example whose name suddenly means 127.0.0.1 (DNS rebinding)
  counts as the same site for the browser, but its requests name evil.example there.
- What changes something must come as `application/json`, or by a method other than POST. A page of another site can
  send a form, but for these the browser first asks us for permission, which we never give.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osrdyne_jobs.errors import CannotServe
from osrdyne_jobs.http import problems
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import hosts, log_lines

logger = log_lines.logger(__name__)

#: What a request must bring, or a function that returns the present one; None where nothing is needed.
Token = str | Callable[[], str] | None

#: What needs no token: whether the process lives, and the files of the page, which hold no data.
OPEN = frozenset({"/healthz", "/", "/page.js", "/page.css"})
#: Fewest characters of a token.
SHORTEST_TOKEN = 16
#: Most bytes of a request's body: a payload of the largest size in which every character is escaped.
MOST_BODY = 1 << 20
#: Seconds for it to come.
BODY_TIME = 30.0
#: Of an answer to a stranger, or to half a request: the connection ends with it.
CLOSE = {"connection": "close"}
#: Sent with every answer. The page runs only our own files, and no other page may frame it.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    error: str
    headers: Mapping[str, str] = field(default_factory=dict)


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
    elif path not in OPEN and not _is_token(headers.get("authorization", ""), token):
        text = "this needs the administration's token, in the header `Authorization: Bearer TOKEN`"
        return Refusal(401, text, {"www-authenticate": "Bearer", **CLOSE})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != "application/json":
        return Refusal(415, "send it with the header `Content-Type: application/json`")
    return None


def _is_token(header: str, token: str) -> bool:
    scheme, _, given = header.partition(" ")
    # The time that it takes does not depend on how much of a wrong token is right.
    return hmac.compare_digest(given.strip().encode(), token.encode()) and scheme.lower() == "bearer"


class AccessGuard:
    """Stands before an application: refuses, bounds the body, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, *, token: Token, let_in: Callable[[object], None] | None = None) -> None:
        """`token` is one that `check_token` takes. A function is called at each request."""
        self._app = app
        self._let_in = let_in
        self._asked = token if callable(token) else None
        self._token = token() if callable(token) else token
        #: Why a function could not be asked; None where it could.
        self._trouble: str | None = None

    def _present(self) -> str | None:
        """Return the token: the last one that could be used, while the present one cannot."""
        if self._asked is not None:
            try:
                token = self._asked()
                check_token(token)
            except Exception as error:  # noqa: BLE001 - of a function of the user's; its text may have the token
                why = str(error) if isinstance(error, OSError | OsrdyneError) else type(error).__name__
                if why != self._trouble:
                    logger.warning("the token cannot be read; the last one counts", extra={"reason": why})
                self._trouble = why
            else:
                self._token, self._trouble = token, None
        return self._token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS | (CLOSE if stranger else {}))
            await send(message)

        token = self._present()
        stranger = token is not None and scope["path"] in OPEN
        refused = refusal(scope["method"], scope["path"], Headers(scope=scope), token)
        if refused is None and not stranger and self._let_in is not None:
            self._let_in(scope["client"])
        if refused is None and scope["method"] == "POST":
            body = await _body(receive)
            if isinstance(body, Refusal):
                refused = body
            else:
                receive = _again(body, receive)
        if refused is None:
            await self._app(scope, receive, send_with_headers)
        else:
            answer = problems.answer(refused.status, refused.error, headers=refused.headers)
            await answer(scope, receive, send_with_headers)


async def _body(receive: Receive) -> bytes | Refusal:
    """Return a request's body, or why it is not taken."""
    body = b""
    try:
        async with asyncio.timeout(BODY_TIME):
            while True:
                message = await receive()
                body += bytes(message.get("body", b""))
                if len(body) > MOST_BODY:
                    return Refusal(413, f"a request has at most {MOST_BODY} bytes", CLOSE)
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        return Refusal(408, f"the body did not come within {BODY_TIME:g} s", CLOSE)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was received already."""
    bodies = [body]

    async def given() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        return await receive()

    return given
