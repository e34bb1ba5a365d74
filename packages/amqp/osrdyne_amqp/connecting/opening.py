"""Turns a broker URI into pika's parameters, and a failed attempt into an error that a person can act on.

Nothing here may show a password: errors never quote the URI, and pika's exceptions are never chained.
"""

from __future__ import annotations

import math
import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from pika import SSLOptions, URLParameters
from pika import exceptions as pika_errors
from pika.credentials import ExternalCredentials

from osrdyne_amqp.connecting import tls
from osrdyne_amqp.errors import AccessRefused, BrokerError, BrokerUnreachable, InvalidUri, TlsFailed
from osrdyne_protocol.errors import causes
from osrdyne_runtime import addresses

#: What pika takes of an address. How long it waits, and how often it tries, is decided here.
_PIKA = ("channel_max", "client_properties", "frame_max", "heartbeat", "locale", "ssl_options", "tcp_options")
_EXAMPLE = "amqp://user:password@host:5672/vhost"
_BAD_LOGIN = "the broker refused the log-in; check user name and password (guest works on the broker's host only)"
_BAD_CERTIFICATE = "the broker refused the log-in; check that it has a user of the certificate's name (EXTERNAL)"


class _External(ExternalCredentials):  # type: ignore[misc]  # pika has no types
    """Log-in by certificate. The user name is only for people: the broker takes the certificate's."""

    def __init__(self, username: str) -> None:
        super().__init__()
        self.username = username


@dataclass(frozen=True, slots=True)
class Destination:
    """The address, for people."""

    #: Without the password.
    where: str
    #: What names the CA that the address trusts; None if it names none.
    authority: str | None

    def __str__(self) -> str:
        return self.where


def parameters(uri: str, name: str, heartbeat: float, timeout: float) -> tuple[Any, Destination]:
    """Pika's parameters, and the address for people. Raises InvalidUri, TlsFailed (files)."""
    parts = _split(uri)
    options, query = tls.take(parts.query)
    try:
        asked = addresses.parameters(query, _PIKA)
    except addresses.UnusableQuery as error:
        raise InvalidUri(f"the broker URI {error}") from None
    if not options.is_default and parts.scheme != "amqps":
        raise InvalidUri("TLS options in a broker URI go with amqps://")
    user = parts.username
    if parts.password is None and not options.external and user is not None:
        raise InvalidUri(f"the broker URI has a user but no password; it looks like {_EXAMPLE}")
    if options.external:
        # Pika wants a password beside a user; this one is never sent.
        parts = parts._replace(netloc=f":@{parts.netloc.rpartition('@')[2]}")
    result = _url_parameters(parts._replace(query=query).geturl())
    if not isinstance(result, URLParameters):
        raise result
    if not options.is_default:
        result.ssl_options = SSLOptions(options.context(), result.host)
    if options.external:
        result.credentials = _External(unquote(user or ""))
    result.connection_attempts = 1
    result.retry_delay = 0
    result.socket_timeout = timeout
    result.stack_timeout = timeout + 5.0  # our own timeout comes first and has the better error
    result.blocked_connection_timeout = None  # an alarm makes confirms late; it is not a reason to reconnect
    if "heartbeat" not in asked:
        result.heartbeat = max(1, math.ceil(heartbeat))
    result.client_properties = {**(result.client_properties or {}), "connection_name": name}
    authority = options.cacertfile or ("ca_certs of ssl_options" if "ca_certs" in query else None)
    where = f"{parts.scheme}://{parts.hostname}:{result.port}"
    where += f" (vhost {result.virtual_host!r}, user {result.credentials.username!r})"
    return result, Destination(where, authority)


def _url_parameters(uri: str) -> Any:
    """Pika's parameters, or the error to raise; raised here it would be chained to one that quotes the URI."""
    try:
        return URLParameters(uri)
    except (ValueError, SyntaxError, TypeError):
        return InvalidUri("an option in the broker URI's query cannot be read; see pika's URLParameters")
    except OSError as error:
        text = error.strerror or type(error).__name__
        return TlsFailed(f"a TLS file named in the broker URI cannot be used: {text}")


def _split(uri: str) -> SplitResult:
    if wrong := addresses.problem(uri, "amqp", "amqps"):
        raise InvalidUri(f"the broker URI {wrong}; it looks like {_EXAMPLE}")
    parts = urlsplit(uri)
    if parts.path.count("/") > 1:
        raise InvalidUri("a / inside the virtual host's name is written %2F in a broker URI")
    return parts


def why_not_open(errors: list[BaseException], close_code: int, close_text: str, where: Destination) -> BrokerError:
    """The typed reason for which a connection could not be opened."""
    if close_code:
        return _closed_by_broker(close_code, close_text, where)
    found = [cause for error in errors for cause in causes(error)]
    # A broker that ends TLS looks to pika like a peer that does not speak AMQP.
    found.sort(key=lambda cause: not isinstance(cause, ssl.SSLError))
    for cause in found:
        reason = _known(cause, where)
        if reason is not None:
            return reason
    for cause in found:
        if isinstance(cause, OSError) and cause.strerror:
            return BrokerUnreachable(f"{where}: {cause.strerror}")
    return BrokerUnreachable(f"{where}: the connection could not be opened ({type(found[-1]).__name__})")


def _closed_by_broker(code: int, text: str, where: Destination) -> BrokerError:
    if code == 403:
        hint = _BAD_CERTIFICATE if "EXTERNAL" in text else _BAD_LOGIN
        return AccessRefused(f"{where}: {hint}", code=code)
    if code == 530:
        hint = "check the virtual host's name and the user's permissions on it"
        return AccessRefused(f"{where}: {text}; {hint}", code=code)
    return BrokerUnreachable(f"{where}: the broker refused the connection: {code} {text}", code=code)


def _known(cause: BaseException, where: Destination) -> BrokerError | None:
    match cause:
        case ssl.SSLError():
            return TlsFailed(f"{where}: {tls.problem(cause, where.authority)}")
        case socket.gaierror():
            return BrokerUnreachable(f"{where}: the host name cannot be resolved ({cause.strerror})")
        case ConnectionRefusedError():
            return BrokerUnreachable(f"{where}: nothing listens there (connection refused); is the broker running?")
        case pika_errors.ProbableAuthenticationError():
            return AccessRefused(f"{where}: {_BAD_LOGIN}")
        case pika_errors.ProbableAccessDeniedError():
            return AccessRefused(f"{where}: the broker hung up when the virtual host was opened")
        case pika_errors.AuthenticationError():
            return AccessRefused(
                f"{where}: the broker does not offer this log-in (PLAIN by user name and password, or EXTERNAL by "
                "certificate, which takes the plugin rabbitmq_auth_mechanism_ssl)"
            )
        case pika_errors.IncompatibleProtocolError() | pika_errors.ProtocolVersionMismatch():
            return BrokerUnreachable(
                f"{where}: the peer does not speak AMQP 0-9-1; is it the right port, with TLS or without?"
            )
    return None
