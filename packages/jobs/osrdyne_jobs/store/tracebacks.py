"""What is kept of an exception that a handler raised: bounded, and without secrets that its worker was given."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Collection, Iterable
from contextlib import suppress
from textwrap import indent
from urllib.parse import unquote

from sqlalchemy import Engine

from osrdyne_jobs.database.engines import FILE_VARIABLE, VARIABLE, address_of
from osrdyne_protocol.errors import SettingsError, causes
from osrdyne_protocol.worker_environment import WORKER_AMQP_URI, WORKER_AMQP_URI_FILE
from osrdyne_runtime.settings import secrets

#: Most characters of a traceback that are kept: its end, which says what was raised, and where.
MOST = 8000
_CUT = "... (the beginning is left out)\n"
#: Libraries whose errors name values of a statement below their first line.
_OF_SQL = frozenset({"asyncpg", "psycopg", "psycopg2", "sqlalchemy"})
#: What a traceback puts before each line: nothing, and within groups of exceptions, of which it shows ten levels.
_MARGINS = ("", *(f"{'  ' * depth}| " for depth in range(1, 12)))


def passwords(addresses: Iterable[str | None]) -> set[str]:
    """Return the spellings in which the passwords of addresses may appear. What has none, or no form, has none."""
    found: set[str] = set()
    for address in filter(None, addresses):
        userinfo, _, _ = address.partition("://")[2].partition("/")[0].rpartition("@")
        given = [userinfo.partition(":")[2]]
        # PostgreSQL takes passwords as parameters, too.
        given += re.findall("[?&](?:ssl)?password=([^?&]*)", address)
        found.update(given, map(unquote, given))
    return found - {""}


def secrets_of(engine: Engine) -> set[str]:
    """Return the passwords that this worker was given: of its database, and of its broker."""
    known = [os.environ.get(VARIABLE), os.environ.get(WORKER_AMQP_URI)]
    with suppress(Exception):  # of the caller's function; the connection says what is wrong with it
        known.append(address_of(engine))
    for variable in (FILE_VARIABLE, WORKER_AMQP_URI_FILE):
        if file := os.environ.get(variable):
            with suppress(SettingsError):
                known.append(secrets.in_file(file, variable))
    own = (engine.url.password, os.environ.get("PGPASSWORD"))  # which libpq reads
    return passwords(known) | {str(password) for password in own if password}


def without(hidden: Collection[str], text: str) -> str:
    """Return a text in which stars stand for secrets. The longest first: one may hold another."""
    for secret in sorted(hidden, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def without_values(error: BaseException, text: str) -> str:
    """Return a text that shows an error and its causes, without the values of SQL statements."""
    ends = {
        str(cause).partition("\n")[2]
        for cause in causes(error)
        if any(base.__module__.partition(".")[0] in _OF_SQL for base in type(cause).__mro__)
    }
    # The longest first: SQLAlchemy's text holds the driver's.
    for end in sorted(ends - {""}, key=len, reverse=True):
        for margin in _MARGINS:
            text = text.replace("\n" + indent(end, margin, lambda _: True), "")
    return text


def kept(error: BaseException, hidden: Collection[str]) -> str | None:
    """Return the traceback of an exception, as it is kept. The values of SQL statements are not part of it.

    None where its class raises when it is asked.
    """
    try:
        text = without_values(error, "".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - whatever it is, the run ends
        return None
    text = without(hidden, text).rstrip()
    return text if len(text) <= MOST else _CUT + text[len(_CUT) - MOST :]
