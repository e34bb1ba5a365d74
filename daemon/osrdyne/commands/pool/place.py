"""Where the broker of a pool is, and as which user: one address, and that of the management API follows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from osrdyne.base.credentials import secret
from osrdyne.broker.management_api import ManagementApi
from osrdyne.settings.daemon import BrokerSettings
from osrdyne_amqp.address import virtual_host
from osrdyne_runtime import addresses
from osrdyne_runtime.console.output import CannotAsk
from osrdyne_runtime.settings import secrets

#: Variables with the broker's AMQP address, and with that of its management API without a user.
BROKER, MANAGEMENT = "OSRDYNE_BROKER", "OSRDYNE_BROKER_MANAGEMENT"
_TLS_FILES = ("cacertfile", "certfile", "keyfile")


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A virtual host of a broker, and one user there."""

    amqp: str = field(repr=False)
    management: str = field(repr=False)

    @property
    def vhost(self) -> str:
        return virtual_host(self.amqp)

    @property
    def user(self) -> str:
        return unquote(urlsplit(self.management).username or "")

    @property
    def host(self) -> str:
        """The broker's host and port, as in its address."""
        return urlsplit(self.amqp).netloc.rpartition("@")[2] or "localhost"

    def __str__(self) -> str:
        return f"broker {self.host}, virtual host {self.vhost}"

    def api(self, timeout: float) -> ManagementApi:
        """Return the management API. Raises ManagementError for an address that cannot be used."""
        return ManagementApi(self.management, self.vhost, timeout=timeout)

    def of_user(self, user: str, password: str) -> BrokerPlace:
        """Return the same place for another user, who gets no certificate of this one."""
        return BrokerPlace(_with_login(self.amqp, user, password), _with_login(self.management, user, password))


def of(amqp: str) -> BrokerPlace:
    """Return the place that an AMQP address names. Raises InvalidUri and CannotAsk."""
    virtual_host(amqp)
    parts = urlsplit(amqp)
    given = os.environ.get(MANAGEMENT)
    if given and (wrong := addresses.problem(given, "http", "https")):
        raise CannotAsk(f"{MANAGEMENT} {wrong}; it looks like http://host:15672")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    usual = f"https://{host}:15671" if parts.scheme == "amqps" else f"http://{host}:15672"
    there = urlsplit(given or usual)
    login = parts.netloc.rpartition("@")[0] or "guest:guest"
    query = _named(parts, *_TLS_FILES) if there.scheme == "https" and not there.query else there.query
    netloc = f"{login}@{there.netloc.rpartition('@')[2]}"
    return BrokerPlace(amqp, there._replace(netloc=netloc, query=query).geturl())


def _named(parts: SplitResult, *names: str) -> str:
    """Return what the query of an address says by these names, as a query."""
    named = dict(part.split("=", 1) for part in parts.query.split("&") if "=" in part)
    return urlencode({name: named[name] for name in names if name in named}, safe="/%")


def chosen(settings: BrokerSettings, file: Path | None) -> BrokerPlace:
    """Return the place that an option names, else the settings, else the variable. Raises SettingsError and others."""
    if file is not None:
        return of(secrets.in_file(file, "--broker-file"))
    if settings.amqp_uri is None and settings.amqp_uri_file is None:
        if given := os.environ.get(BROKER):
            return of(given)
        raise CannotAsk(f"no broker is named; set {BROKER}=amqp://USER:PASSWORD@HOST:5672/VHOST, or --broker-file")
    return of_settings(settings)


def of_settings(settings: BrokerSettings) -> BrokerPlace:
    """Return the place of the daemon itself. Raises SettingsError."""
    return BrokerPlace(
        secret(settings.amqp_uri, settings.amqp_uri_file, "broker.amqp_uri"),
        secret(settings.management_uri, settings.management_uri_file, "broker.management_uri"),
    )


def _with_login(address: str, user: str, password: str) -> str:
    parts = urlsplit(address)
    login = ":".join(quote(text, safe="") for text in (user, password))
    netloc = f"{login}@{parts.netloc.rpartition('@')[2]}"
    return parts._replace(netloc=netloc, query=_named(parts, "cacertfile")).geturl()


def without_password(address: str) -> str:
    """Return an address for a person."""
    if addresses.problem(address, "amqp", "amqps", "http", "https"):
        return "not an address"
    parts = urlsplit(address)
    return parts._replace(netloc=f"{parts.username or ''}@{parts.netloc.rpartition('@')[2]}").geturl()
