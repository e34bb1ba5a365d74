"""`osrdyne call`: send one request to the workers of a key and print the answer.

Reads the broker's address from an option, a file or the environment, the body from an argument, a file or standard
input. Writes the reply's body to standard output, and why there is none to standard error.
"""

from __future__ import annotations

import base64
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from osrdyne_amqp.errors import AccessRefused
from osrdyne_client import CallTimeout, Client, RemoteError
from osrdyne_client.connection import CONNECT_SECONDS
from osrdyne_client.errors import Expired
from osrdyne_protocol import expiry, statuses
from osrdyne_protocol import headers as names
from osrdyne_runtime.console import broker_address, log_format
from osrdyne_runtime.console.output import NO, CannotAsk, complain, one_line_errors, print_json, seconds_of

#: What a person can do about an error reply; where nothing is said, its meaning says enough.
_NEXT = {
    statuses.EXPIRED: "see `osrdyne status` for why no worker took it",
    statuses.DELIVERY_LIMIT: "see the logs of its workers",
    statuses.MAXLEN: "try again later, or give the key more workers",
    statuses.START_FAILED: "see `osrdyne status --key` for how its workers end",
    statuses.THROTTLED: "try again later; see `pool.limits.groups` and `limits.new_keys` of the settings",
    statuses.UNROUTABLE: "see `osrdyne lint` and the daemon's log",
}

#: Seconds of connecting that the timeout leaves out, and of closing: together they are less than one.
_MOMENT_SECONDS, _CLOSE_SECONDS = 0.2, 0.6


@one_line_errors
def command(
    context: typer.Context,
    key: Annotated[str, typer.Argument(help="Which specialization is asked; the routing key, '' included.")],
    body: Annotated[str | None, typer.Argument(help="The request; '-' reads standard input. Default: empty.")] = None,
    *,
    pool: Annotated[str, typer.Option(envvar="OSRDYNE_CLIENT_POOL", help="Name of the pool.")],
    broker_file: Annotated[
        Path | None,
        typer.Option(envvar="OSRDYNE_CLIENT_URI_FILE", help="File that holds the broker's address; best choice."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            envvar="OSRDYNE_CLIENT_URI",
            metavar="URI",
            help="Broker's address, amqp://user:password@host:5672/vhost. On the command line its password can be seen "
            "in the list of processes: prefer --broker-file or the environment.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the request's body from this file.")] = None,
    timeout: Annotated[
        str,
        typer.Option(
            help="How long to wait, for the connection, too: seconds (90) or ISO 8601 (PT1M30S). Also the request's "
            "deadline."
        ),
    ] = "60",
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header with a text value; may be repeated.")
    ] = None,
    cast: Annotated[bool, typer.Option("--cast", help="Ask for no reply; done once the broker has it.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, also for an error.")] = False,
) -> None:
    """Send one request to the workers of KEY and print the answer.

    The first request for a key starts its workers and waits for them. A KEY that begins with '-' goes after '--',
    and the empty key is '': osrdyne call --pool core -- -1 BODY

    Exit status 1: an error reply, or none in time.
    """
    log_format.configure(as_json=json)
    # The error of the call says why it failed; the client's own warnings about reconnects do not help a person.
    logging.getLogger().setLevel(logging.ERROR)
    request, seconds, extra = _body(body, file), _seconds(timeout), _headers(header or [])
    uri = broker_address.chosen(context, broker, broker_file, variable="OSRDYNE_CLIENT_URI")
    began = time.monotonic()
    outcome: dict[str, Any]
    try:
        client = Client(uri, pool, slots=1, connect_timeout=min(CONNECT_SECONDS, seconds), name="osrdyne call")
        try:
            client.open()
            connected = time.monotonic()
            seconds, began = _left(seconds, connected - began), connected
            if cast:
                client.cast(key, request, timeout=seconds, headers=extra)
                outcome, content, problem = {"status": None, "accepted": True}, None, None
            else:
                reply = client.call(key, request, timeout=seconds, headers=extra)
                outcome = _described(reply.status, reply.headers, reply.correlation_id)
                content, problem = reply.body, None
        finally:
            client.close(_CLOSE_SECONDS)
    except RemoteError as error:
        outcome = _described(error.status, error.headers, error.correlation_id) | {"reason": error.reason}
        content, problem = error.body, _meaning(error)
    except CallTimeout as error:
        outcome, content, problem = {"status": None}, None, str(error)
    except AccessRefused as error:
        hint = "; is --pool right, and is this a client of that pool?" if "exchange" in str(error) else ""
        raise CannotAsk(f"{error}{hint}") from None
    outcome["seconds"] = round(time.monotonic() - began, 6)
    if problem is not None:
        outcome["error"] = problem
    _show(outcome, content, as_json=json)
    if problem is not None:
        complain(problem)
        raise typer.Exit(NO)


def _body(body: str | None, file: Path | None) -> bytes:
    if file is not None:
        if body is not None:
            raise CannotAsk("both BODY and --file are given; give one of them")
        try:
            return file.read_bytes()
        except OSError as error:
            raise CannotAsk(f"--file {file} cannot be read: {error.strerror}") from None
    if body == "-":
        return sys.stdin.buffer.read()
    # Bytes of the command line that are not UTF-8 arrive as they were typed.
    return (body or "").encode("utf-8", errors="surrogateescape")


def _seconds(text: str) -> float:
    seconds = seconds_of(text, "--timeout")
    if seconds == 0:
        raise CannotAsk("--timeout: must be longer than 0 seconds")
    return seconds


def _left(seconds: float, connecting: float) -> float:
    """Return what is left of the time after so many seconds of connecting."""
    return seconds if connecting < _MOMENT_SECONDS else max(0.01, round(seconds - connecting, 2))


def _headers(given: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in given:
        name, equals, value = line.partition("=")
        if not name or not equals:
            raise CannotAsk(f"--header {line!r}: give NAME=VALUE")
        if name == names.X_DEADLINE:
            raise CannotAsk(f"--header {name}: is set from --timeout")
        values[name] = value
    return values


def _described(status: str, headers: Mapping[str, Any], correlation_id: str) -> dict[str, Any]:
    return {"status": status, "headers": dict(headers), "correlation_id": correlation_id}


def _meaning(error: RemoteError) -> str:
    parts = [f"{error.status}: {statuses.STATUSES.get(error.status, 'This status is not in the table of statuses.')}"]
    # The body goes to standard output, perhaps into a file. What a handler raised is in it.
    if said := statuses.first_line(error.body):
        parts.append(f"It says: {said}")
    if error.reason:
        parts.append(f"Reason: {error.reason}")
    if isinstance(error, Expired) and error.stage is not None:
        parts.append(f"Where: {error.stage}: {expiry.STAGES.get(error.stage, 'This stage is not known here.')}")
    if error.status in _NEXT:
        parts.append(f"To do: {_NEXT[error.status]}.")
    return " ".join([*parts, f"(correlation id {error.correlation_id})"])


def _show(outcome: dict[str, Any], body: bytes | None, *, as_json: bool) -> None:
    """Print the body as it is, or everything as JSON: the body as text, or as base64 where it is none."""
    if as_json:
        if body is not None:
            try:
                outcome["body"] = body.decode("utf-8")
            except UnicodeDecodeError:
                outcome["body_base64"] = base64.b64encode(body).decode("ascii")
        print_json(outcome)
        return
    if not body:
        return
    if sys.stdout.isatty():
        _show_person(body)
        return
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


def _show_person(body: bytes) -> None:
    text = body.decode("utf-8", errors="replace")
    if all(char.isprintable() or char in "\n\t\r" for char in text) and "\ufffd" not in text:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        complain(f"answered with {len(body)} bytes that are not text; redirect them to a file, or use --json")
