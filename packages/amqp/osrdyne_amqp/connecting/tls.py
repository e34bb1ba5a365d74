"""TLS as a broker's address asks for it: files and log-in by certificate, in the query of the URI.

The names are those of RabbitMQ's own URI query parameters, and the same for AMQP (`amqps://`) and for the management
API (`https://`): `cacertfile`, `certfile`, `keyfile`, `auth_mechanism`. A certificate is always verified, its host
name too; there is no option to turn that off. Reads the files, writes nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import parse_qsl

from osrdyne_amqp.errors import InvalidUri, TlsFailed
from osrdyne_runtime import certificate_faults, certificates

_FILES = ("cacertfile", "certfile", "keyfile")
_MECHANISM = "auth_mechanism"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What an address says about TLS. Paths of PEM files; without `cacertfile` the system's CAs are trusted."""

    cacertfile: str | None = None
    certfile: str | None = None
    #: The certificate's key; None when it is in `certfile`.
    keyfile: str | None = None
    #: Log in as the user that the certificate names (SASL EXTERNAL), without a password.
    external: bool = False

    @property
    def is_default(self) -> bool:
        return self == TlsOptions()

    def context(self) -> ssl.SSLContext:
        """Return what to connect with. Raises TlsFailed, which names the file that cannot be used."""
        try:
            result = ssl.create_default_context(cafile=self.cacertfile)
        except OSError as error:
            raise TlsFailed(f"cacertfile {self.cacertfile}: {_why(error)}") from None
        if self.certfile is not None:
            try:
                certificates.load(result, self.certfile, self.keyfile)
            except OSError as error:
                files = f"certfile {self.certfile}" + (f", keyfile {self.keyfile}" if self.keyfile else "")
                raise TlsFailed(f"{files}: {_why(error)}") from None
        return result


def take(query: str) -> tuple[TlsOptions, str]:
    """Split the query of an address into what is said here and the rest. Raises InvalidUri."""
    found: dict[str, str] = {}
    rest: list[str] = []
    for part in filter(None, query.split("&")):
        name, value = (parse_qsl(part, keep_blank_values=True) or [("", "")])[0]
        if name not in (*_FILES, _MECHANISM):
            rest.append(part)
        elif name in found or not value:
            raise InvalidUri(f"{name} is given once in a broker's address, and not empty")
        else:
            found[name] = value
    mechanism = found.pop(_MECHANISM, "plain").lower()
    if mechanism not in ("plain", "external"):
        raise InvalidUri(f"{_MECHANISM} in a broker's address is plain or external")
    options = TlsOptions(**found, external=mechanism == "external")
    if options.keyfile is not None and options.certfile is None:
        raise InvalidUri("keyfile in a broker's address goes with a certfile")
    if options.external and options.certfile is None:
        raise InvalidUri("auth_mechanism=external in a broker's address goes with a certfile")
    return options, "&".join(rest)


def problem(error: ssl.SSLError, cacertfile: str | None) -> str:
    """Return what was wrong with a handshake, and what to do. `cacertfile` is that of the address."""
    if fault := certificate_faults.fault(error, authority=cacertfile, setting="cacertfile in the address"):
        return fault
    reason = str(error.reason or "TLS failed")
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")):
        return f"{reason}: the broker wants a certificate of this program, or refuses it; see certfile and keyfile"
    return f"{reason}; check that this port speaks TLS"


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "no certificates in PEM"
    return error.strerror or str(error) or type(error).__name__
