"""The groups of one pool and instance: their records, and the environment in each one's file.

Reads the credential whenever a file is written, does not keep it, and removes it from texts for people.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from osrdyne.drivers import redaction
from osrdyne.drivers.systemd.environment import EnvironmentFiles, UnitRecord
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import milliseconds
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.names import PoolNames, engine_name
from osrdyne_protocol.worker_environment import WorkerEnvironment

log = logging.getLogger(__name__)


class Groups:
    """Records and environment files by name. Methods that write raise `DriverError`."""

    def __init__(
        self,
        pool: PoolSettings,
        directory: Path,
        worker_amqp_uri: Callable[[], str],
        worker_amqp_uri_file: Path | None,
    ) -> None:
        self._pool = pool
        self._names = PoolNames(pool.name)
        self._worker_amqp_uri = worker_amqp_uri
        self._worker_amqp_uri_file = None if worker_amqp_uri_file is None else str(worker_amqp_uri_file.absolute())
        #: How long a worker may hold one request.
        self.consumer_timeout_ms = milliseconds(pool.consumer_timeout)
        self._files = EnvironmentFiles(directory, pool.name, pool.instance)
        #: What is known of each group, also of one whose file was removed.
        self._known: dict[str, UnitRecord] = {}

    def name(self, key: str) -> str:
        """Return the name of a key's group."""
        return engine_name(self._pool.name, self._pool.instance, key)

    def get(self, name: str) -> UnitRecord | None:
        """Return what is known of a group, None when it is none of ours."""
        return self._known.get(name) or self._files.read(name)

    def known(self) -> list[UnitRecord]:
        """Return the groups that were there lately."""
        return list(self._known.values())

    def other_names(self) -> Set[str]:
        """Return the names of groups that an earlier version started, as far as their files were read."""
        return self._files.other_names

    def remove_other(self, name: str) -> None:
        """Remove the file, with a credential, of a group of `other_names` that has ended."""
        self._files.remove_other(name)

    def begin(self, key: str, template: str) -> UnitRecord:
        """Write the file of a new start, which has a worker id of its own."""
        worker_id = f"{self.name(key)}-{secrets.token_hex(8)}"
        record = UnitRecord(key, self._pool.name, self._pool.instance, worker_id, template)
        self.write(record)
        return record

    def write(self, record: UnitRecord) -> None:
        """Write a group's file."""
        self._files.write(record, self._environment(record))
        self._known[record.name] = record

    def remove(self, record: UnitRecord) -> None:
        """Remove the file of one start, and forget it; that of a later start stays."""
        self._files.remove(record)
        if self._known.get(record.name) == record:
            del self._known[record.name]

    def read_all(self, running: Set[str]) -> dict[str, UnitRecord]:
        """Return the groups with a file, and those of the units in `running` whose file was removed."""
        records = self._files.read_all()
        for name, record in self._known.items():
            if name in running and name not in records:
                log.warning("environment file of a running unit was missing", extra={"key": record.key})
                records[name] = record
        self._known.update(records)
        return records

    def bring_up_to_date(self, record: UnitRecord) -> None:
        """Let a restart by systemd find a file, with the credential and the settings as they are now."""
        with contextlib.suppress(DriverError):
            if not self._files.is_as(record, self._environment(record)):
                self.write(record)

    def shown(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Return a worker's last lines as an error may show them; none when the password cannot be struck out."""
        try:
            return redaction.last_lines(lines, redaction.passwords(self._worker_amqp_uri()))
        except (SettingsError, ValueError):
            return ()

    def _environment(self, record: UnitRecord) -> dict[str, str]:
        try:
            amqp_uri = self._worker_amqp_uri()
        except SettingsError as error:
            raise DriverError(str(error)) from error
        return WorkerEnvironment(
            id=record.worker_id,
            key=record.key,
            pool=record.pool,
            requests_queue=self._names.request_queue(record.key),
            activity_exchange=self._names.activity_exchange,
            amqp_uri=amqp_uri,
            amqp_uri_file=self._worker_amqp_uri_file,
            consumer_timeout_ms=self.consumer_timeout_ms,
        ).to_environ()
