"""Asking all who can say what is wrong with a key: callers, commands, the inventory, the events and the metrics."""

from __future__ import annotations

import contextlib
import html
import json
import re
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
from prometheus_client.parser import text_string_to_metric_families

from osrdyne_client import Client, OsrdyneError
from osrdyne_protocol import headers
from osrdyne_protocol.event_batches import unpack
from testbed.causes import COMMAND, EVENTS, METRICS, POISON, PYTHON, REPORT, STATUS, Cause, masked
from testbed.command_line import osrdyne
from testbed.pool import DaemonProcess, Pool
from testbed.suite import in_make_test
from testbed.waiting import PATIENCE_SECONDS, until

#: Log messages of the daemon that say why a key does not work.
_OF_A_KEY = ("group failed; it is tried again", "queue action failed; it is tried again")
_CORRELATION_ID = re.compile(r" \(correlation id \S+\)")
_AGO = re.compile(r"^\S+ ago, ")
#: What a reason has besides the last line of a worker's output: how it ended, and where its log is.
_HOW_AND_LOG = re.compile(r"^.*?; see [^:]*(?:: |$)")


class Events:
    """All activity events of a pool since this was made. Threads may ask at the same time."""

    def __init__(self, pool: Pool) -> None:
        parameters = pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))
        # Between two questions nothing answers the broker's heartbeats, and a caller may wait for minutes.
        parameters.heartbeat = 0
        self._connection = pika.BlockingConnection(parameters)
        self._lock = threading.Lock()
        self._channel = self._connection.channel()
        self._queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(self._queue, pool.names.activity_exchange)
        self._seen: list[tuple[str, dict[str, Any]]] = []

    def of(self, key: str) -> list[str]:
        """Return a line for each event of a key: its name, its outcome and its reason."""
        with self._lock:
            while (got := self._channel.basic_get(self._queue, auto_ack=True))[0] is not None:
                found, properties, body = got
                self._seen += [(found.routing_key, dict(event)) for event in unpack(properties.headers, body)]
        names = (headers.X_EVENT, headers.X_OUTCOME, headers.X_REASON)
        return [": ".join(str(event[name]) for name in names if name in event) for of, event in self._seen if of == key]

    def count(self, key: str, name: str) -> int:
        """Return how many events of this name a key has."""
        return sum(line.partition(":")[0] == name for line in self.of(key))

    def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()


@dataclass
class Askers:
    """Those who ask about one key of a pool."""

    pool: Pool
    daemon: DaemonProcess
    events: Events
    key: str = "XX"

    def in_python(self, body: bytes, timeout: float) -> list[str]:
        """Return what a caller's program reads."""
        with Client(self.pool.client_uri, self.pool.names.pool) as client:
            try:
                return [f"answer {client.call(self.key, body, timeout=timeout).body!r}"]
            except OsrdyneError as error:
                return [_CORRELATION_ID.sub("", f"{type(error).__name__}: {error}")]

    def by_command(self, body: bytes, timeout: float) -> list[str]:
        """Return what `osrdyne call` writes to standard error."""
        words = ("call", self.key, body, "--pool", self.pool.names.pool, "--timeout", f"{timeout:g}")
        done = osrdyne(*words, variables={"OSRDYNE_CLIENT_URI": self.pool.client_uri})
        return [_CORRELATION_ID.sub("", line) for line in done.err.splitlines()]

    def callers(self, body: bytes = b"x") -> dict[str, list[str]]:
        """Return what callers read. They wait as long as a slow machine may need."""
        return {
            PYTHON: self.in_python(body, PATIENCE_SECONDS),
            COMMAND: self.by_command(body, PATIENCE_SECONDS),
        }

    def until_told(self, cause: Cause) -> None:
        """Send a request, and wait until `osrdyne status --key` says what broke."""
        with Client(self.pool.client_uri, self.pool.names.pool) as client:
            client.cast(self.key, b"x", timeout=PATIENCE_SECONDS)
        until(lambda: not cause.missing(STATUS, self.status()), what="the cause in `status`")

    def status(self) -> list[str]:
        """Return the lines of `osrdyne status --key`, without how long ago something was."""
        done = osrdyne("status", "--url", self.daemon.url, "--key", self.key)
        return [_AGO.sub("", " ".join(line.split())) for line in done.out.decode().splitlines()]

    def poison(self) -> list[str]:
        """Return the lines of `osrdyne poison show` of the last entry, none where there is no entry."""
        words = ("--pool", self.pool.names.pool)
        variables = {"OSRDYNE_OPERATOR_URI": self.pool.uri(self.pool.users.operator)}
        listed = osrdyne("poison", "list", "--json", *words, variables=variables)
        ids = [entry["id"] for entry in json.loads(listed.out)["entries"]]
        shown = [
            osrdyne("poison", "show", request_id, *words, variables=variables).out.decode() for request_id in ids[-1:]
        ]
        return "".join(shown).splitlines()

    def metrics(self) -> list[str]:
        """Return the series of the daemon that are not 0."""
        families = text_string_to_metric_families(self.daemon.get("/metrics"))
        found = [sample for family in families for sample in family.samples if sample.value]
        labels = [",".join(f'{name}="{value}"' for name, value in sample.labels.items()) for sample in found]
        return [f"{sample.name}{{{text}}}" if text else sample.name for sample, text in zip(found, labels, strict=True)]

    def report(self) -> list[str]:
        """Return the texts of the page that the pipeline makes of the events of the pool."""
        with tempfile.TemporaryDirectory() as folder:
            address, page = Path(folder, "monitor.uri"), Path(folder, "page.html")
            address.write_text(self.pool.uri(self.pool.users.monitor))
            here = ("--pool", self.pool.names.pool, "--lake", f"{folder}/lake")
            for words in (("ingest", "--uri-file", str(address)), ("tables",), ("report", "--output", str(page))):
                done = osrdyne("pipeline", *words, *here)
                assert done.code == 0, done
            shown = page.read_text().partition("<body>")[2]
            return [html.unescape(text) for text in re.split(r"<[^>]*>", shown) if text.strip()]

    def logged(self) -> list[str]:
        """Return why the key did not work, by the log of the daemon."""
        lines = (line for line in self.daemon.lines() if line["message"] in _OF_A_KEY and line["key"] == self.key)
        return list(dict.fromkeys(masked(line["reason"]) for line in lines))

    def check(self, cause: Cause, read: dict[str, list[str]]) -> None:
        """Check that each asker gets the words of the page, and no less than the log of the daemon has.

        `read` is what callers have read so far. The others are asked until they say it: an event takes a moment.
        """
        later = {STATUS: self.status, EVENTS: lambda: self.events.of(self.key), METRICS: self.metrics}
        later |= {POISON: self.poison} if POISON in cause.words else {}
        # It takes some seconds.
        later |= {REPORT: self.report} if cause.patterns(REPORT) and not in_make_test() else {}
        for asker, ask in later.items():
            with contextlib.suppress(AssertionError):
                until(lambda asker=asker, ask=ask: not cause.missing(asker, ask()))  # type: ignore[misc]
            read[asker] = ask()
            assert not cause.missing(asker, read[asker]), (asker, cause.missing(asker, read[asker]), read[asker])
        for asker in (PYTHON, COMMAND):
            assert not cause.missing(asker, read[asker]), (asker, read[asker])
        # The engine may say more of one end than of another: it may miss that memory was the reason.
        if reasons := self.logged():
            for asker in (PYTHON, COMMAND, STATUS, EVENTS, POISON):
                if asker in read and cause.patterns(asker):
                    found = [reason for reason in reasons if any(reason in masked(line) for line in read[asker])]
                    assert found, (asker, reasons, read[asker])
            if cause.patterns(REPORT) and REPORT in read:
                # It has how, output and log in cells of their own.
                outputs = [
                    "stuck" if reason.startswith("stuck: ") else _HOW_AND_LOG.sub("", reason) for reason in reasons
                ]
                found = [output for output in outputs if any(output in masked(line) for line in read[REPORT])]
                assert found, (outputs, read[REPORT])
