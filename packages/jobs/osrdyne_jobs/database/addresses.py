"""Reads the address of a database, for all programs and commands alike. What it cannot use, it names.

PostgreSQL's addresses are read by libpq: `postgres://`, several hosts, and all its parameters are as `psql` has them.
`pooler=true` is ours. No text of an error has a part of the address that may be its password.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from osrdyne_jobs.errors import InvalidAddress
from osrdyne_runtime import addresses
from osrdyne_runtime.console.imports import extra

_EXAMPLE = "postgresql://user:password@host/database"
#: Names what is ours: a pooler stands between, which gives each transaction another connection.
POOLER = "pooler"
_OTHERS = ("mysql", "mariadb", "oracle", "mssql", "mongodb", "redis")
_FLAGS = {"true": True, "false": False}
#: What libpq and psycopg say of a server that cannot be reached, or does not answer.
_AWAY = re.compile(r"Connection refused|timeout expired|could not translate|failed to resolve|No route to host")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """An address that was read."""

    #: For people and SQLAlchemy: without password and parameters.
    url: URL
    #: What libpq connects with; empty for SQLite.
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    #: Whether a pooler stands between, so that a session is only as long as a transaction.
    pooler: bool = False

    @property
    def is_postgresql(self) -> bool:
        return self.url.get_backend_name() == "postgresql"

    @property
    def hosts(self) -> int:
        """How many hosts it names."""
        return str(self.parameters.get("host", "")).count(",") + 1


def read(text: str) -> DatabaseAddress:
    """Read an address of PostgreSQL or SQLite. Raises InvalidAddress."""
    if not isinstance(text, str):
        raise InvalidAddress(f"the database's address is {type(text).__name__}, not text")
    scheme, separator, rest = text.strip().partition("://")
    match scheme.lower().partition("+"):
        case (("postgresql" | "postgres"), _, ("" | "psycopg")):
            return _postgresql(rest)
        case "sqlite", _, ("" | "pysqlite" | "aiosqlite"):
            return _sqlite(rest)
        case "postgresql" | "postgres" | "sqlite", _, _:
            raise InvalidAddress("the database's address names a driver; leave out what follows the +")
    if separator and scheme.lower() in _OTHERS:  # any other text may be a part of a password
        raise InvalidAddress(f"jobs are kept in PostgreSQL or SQLite, not in {scheme}")
    raise InvalidAddress(f"the database's address is not a URL; write {_EXAMPLE}")


def _sqlite(rest: str) -> DatabaseAddress:
    _parameters(rest, ())
    try:
        return DatabaseAddress(make_url(f"sqlite://{rest}"))
    except (ArgumentError, ValueError):
        raise InvalidAddress("the database's address cannot be read; write sqlite:////absolute/path") from None


def _postgresql(rest: str) -> DatabaseAddress:
    with extra("osrdyne-jobs[postgresql]"):
        import psycopg  # not where SQLite is the store
        from psycopg.conninfo import conninfo_to_dict

    known = frozenset(option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()) | {"ssl", POOLER}
    given = _parameters(rest, known)
    place, _, query = rest.partition("?")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] != POOLER]
    whole = f"postgresql://{place}{'?' if kept else ''}{'&'.join(kept)}"
    try:
        if place.count("@") > 1 or "@" in place.partition("/")[2]:  # libpq would take a part of a password for a host
            raise ValueError
        parameters: dict[str, Any] = dict(conninfo_to_dict(whole))
        hosts, ports = (str(parameters.get(name) or "") for name in ("host", "port"))
        if not re.fullmatch(r"(\d{1,5})?(,(\d{1,5})?)*", ports):
            raise ValueError
        url = URL.create(
            "postgresql+psycopg",
            username=parameters.get("user"),
            host=hosts or None,
            port=int(ports) if ports.isdecimal() else None,
            database=parameters.get("dbname"),
        )
    except (psycopg.Error, ValueError):  # whose text may have a part of the password
        raise InvalidAddress(
            f"the database's address cannot be read; write {_EXAMPLE}, and / : @ ? # % in a user name or a password "
            "percent-encoded, as @ in what follows the host"
        ) from None
    pooler = given.get(POOLER, "false")
    if pooler not in _FLAGS:
        raise InvalidAddress(f"{POOLER} in the database's address is true or false")
    if not given.get("connect_timeout", "0").isdecimal():
        raise InvalidAddress("connect_timeout in the database's address is a whole number of seconds")
    return DatabaseAddress(url, parameters, _FLAGS[pooler])


def _parameters(rest: str, known: Collection[str]) -> dict[str, str]:
    try:
        return addresses.parameters(rest.partition("?")[2], known)
    except addresses.UnusableQuery as error:
        raise InvalidAddress(f"the database's address {error}") from None


def advice(said: str) -> str:
    """Return what to do where a server is away, by what its library says; nothing for other errors."""
    return "; is PostgreSQL running, and is this its address?" if _AWAY.search(said) else ""
