"""`osrdyne status`: the status of the daemon and its keys, as a table or as JSON.

Reads the daemon's status endpoints over HTTP, and the settings file where one is named, for their address. Changes
nothing. `status_table` draws the table.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from osrdyne.commands import status_table
from osrdyne.settings.daemon import StatusSettings, load
from osrdyne_protocol import foreign_json
from osrdyne_protocol.foreign_json import MOST_BYTES_OF_ENGINES
from osrdyne_runtime import addresses
from osrdyne_runtime.console.output import NO, CannotAsk, complain, one_line_errors, print_json, printable

#: Longest wait for the daemon, which answers from memory.
TIMEOUT_SECONDS = 5.0


class Probe(StrEnum):
    """What the health check of a container asks for."""

    #: Its process lives.
    ALIVE = "alive"
    #: It leads or stands by.
    READY = "ready"


@one_line_errors
def command(
    url: Annotated[str | None, typer.Option(help="Address of the daemon's status endpoints.")] = None,
    settings: Annotated[Path | None, typer.Option(help="The daemon's settings file, to find that address.")] = None,
    key: Annotated[str | None, typer.Option(help="Show this key only.")] = None,
    watch: Annotated[float | None, typer.Option(min=0.1, metavar="SECONDS", help="Show again every so often.")] = None,
    probe: Annotated[
        Probe | None, typer.Option(help="Only ask whether the daemon is alive, or ready, as a health check does.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: one document, or with --watch one a line.")] = False,
) -> None:
    """Show what the daemon does, and each key: its state, what waits, who works, the last error, the time it has left.

    Counts of messages are older than all else; it shows their age. Without options it asks the daemon on this machine,
    port 8042.

    Exit status: 0 it leads or stands by; 1 it can do neither, the broker is in an alarm, or does not answer its
    questions, and it says why; 2 no daemon answers.
    """
    address = _address(url, settings)
    if probe is not None:
        _probe(address, probe)
    elif watch is None:
        document = fetch(address, key)
        _show(document, key, as_json=json)
        if not document["ready"]:
            complain(f"the daemon at {address} is not ready: {_not_ready(document)}")
            raise typer.Exit(NO)
        if document.get("uncounted"):
            complain(f"the daemon at {address} cannot count messages, so it stops no worker: {document['uncounted']}")
            raise typer.Exit(NO)
    else:
        _watch(address, key, watch, as_json=json)


def _probe(address: str, probe: Probe) -> None:
    code, body = _get(address, {Probe.ALIVE: "/healthz", Probe.READY: "/readyz"}[probe])
    if code != http.HTTPStatus.OK:
        complain(f"the daemon at {address} is not {probe}: {printable(body.decode(errors='replace').strip())}")
        raise typer.Exit(NO)
    typer.echo(probe)


def _not_ready(document: dict[str, Any]) -> object:
    alarm = document.get("alarm")
    return document.get("detail") or (f"broker alarm ({alarm})" if alarm else document.get("state"))


def fetch(address: str, key: str | None = None) -> dict[str, Any]:
    """Return the daemon's status document with `ready` added, only with one key if asked. Raises `CannotAsk`."""
    document = _get(address, "/status")
    try:
        found = dict(foreign_json.read(document[1], most=MOST_BYTES_OF_ENGINES))
        keys = [row for row in found["keys"] if key is None or row["key"] == key]
        # A daemon of an earlier version says nothing of ends.
        ends = [end for end in found.get("ends", ()) if key is None or end["key"] == key]
        shown = {"ready": _get(address, "/readyz")[0] == 200, **found, "keys": keys, "ends": ends}
        status_table.render(shown, key)  # a document that cannot be shown does not come from a daemon
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise CannotAsk(f"what answers at {address} is not an osrdyne daemon; name its address with --url") from None
    return shown


def _address(url: str | None, settings: Path | None) -> str:
    if url is not None and settings is not None:
        raise CannotAsk("--url and --settings name two addresses; give one of them")
    if url is not None:
        wrong = addresses.problem(url, "http", "https")
        if wrong or "?" in url or "@" in url:
            raise CannotAsk(f"--url {wrong or 'has a user or a query'}; give an address such as http://127.0.0.1:8042")
        return url.rstrip("/").removesuffix("/status")
    chosen = load(settings).status if settings is not None else StatusSettings()
    if chosen.port == 0:
        raise CannotAsk(f"{settings} lets the system choose the port; see the log line 'status served', and use --url")
    # A daemon that listens on all addresses listens on loopback, too.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(chosen.host, chosen.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{chosen.port}"


def _get(address: str, path: str) -> tuple[int, bytes]:
    """Return status code and body, also of a 503. The system's proxies are not used."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address + path, timeout=TIMEOUT_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise CannotAsk(
            f"no daemon answers at {address}: {why}; is it running (`osrdyne daemon`, or its unit), and is this its "
            "status address (--url, --settings)?"
        ) from None


def _show(document: dict[str, Any], key: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        status_table.console().print(status_table.render(document, key))


def _watch(address: str, key: str | None, seconds: float, *, as_json: bool) -> None:
    """Show until Ctrl-C; for an unreachable daemon, show that and try again."""
    with status_table.live(silent=as_json) as show:
        while True:
            try:
                document = fetch(address, key)
            except CannotAsk as error:
                print_json({"error": str(error)}, indent=None) if as_json else show(str(error))
            else:
                print_json(document, indent=None) if as_json else show(status_table.render(document, key))
            time.sleep(seconds)
