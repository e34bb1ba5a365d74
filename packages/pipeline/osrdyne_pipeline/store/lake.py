"""The tables of a pool in an object store: `s3://BUCKET/PREFIX/POOL/NAME`, a table of Delta Lake each.

An object store cannot rename a folder. A table's log of commits takes the place of that: a commit is one object, which
is written if there is none of its number yet. So a reader sees a table before a commit or after it, and of two writers
one is refused. It is the first to have read the table that may commit: who began from an older version stops.

What ingest has read is noted in the commit that adds it: the batch and its note are there together, or not at all.
Rejects are written before. Those of a batch that was not committed stay where they are, and are not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from osrdyne_pipeline.batches import Batch
from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.lake import BY_DAY, IN_BATCHES, known
from osrdyne_pipeline.places import store
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.store import refusals
from osrdyne_pipeline.store.objects import TRIED, Objects, store_errors
from osrdyne_protocol.names import check_pool_name

#: Gives rows when it is called, once.
Rows = Callable[[], pa.RecordBatchReader]

#: By which a commit of bronze carries the note of its batch.
NOTE = "osrdyne.batch"
#: Hours for which the files of a replaced table stay, for readers that have begun.
KEPT_HOURS = 24
#: Column of `rejects` in an object store: the batch that a row is of. It is the name of a folder elsewhere.
BATCH = "batch"
#: The notes of batches are in the log, and stay as long as the table.
_WHOLE_LOG = {"delta.enableExpiredLogCleanup": "false"}
#: The log has no least and greatest values: it outlives rows that are forgotten.
_NO_VALUES = {"delta.dataSkippingNumIndexedCols": "0"}
_ZSTD = WriterProperties(compression="ZSTD")


class StoreLake:
    """The tables of one pool. Reads and writes nothing until it is asked to."""

    def __init__(self, root: str, pool: str) -> None:
        """Raises `InvalidPoolName`, and `LakeError` for what is not an address of a bucket."""
        self.pool = check_pool_name(pool)
        named = store(root)
        if named is None:
            raise LakeError(f"no lake can be there: {root} does not name a bucket: give s3://BUCKET/PREFIX")
        #: The address of the pool's tables, as people are shown it.
        self.where = "s3://" + "/".join(part for part in (*named, pool) if part)
        self.objects = Objects(self.where)
        tried = f"{TRIED.seconds}s"
        self._options = {"max_retries": "3", "retry_timeout": tried, "timeout": tried}
        if (refusals.endpoint() or "").startswith("http:"):
            self._options["allow_http"] = "true"
        #: Tables as they were when this process became their writer, and with what it has committed since.
        self._held: dict[str, DeltaTable | None] = {}

    def address(self, name: str) -> str:
        """Return the address of a table. Raises `LakeError` for a name that no table has."""
        return f"{self.where}/{known(name)}"

    def check_writable(self) -> None:
        """Raise `LakeError`, with what to do, where nothing can be written."""
        self.objects.check_writable()

    def exists(self, name: str) -> bool:
        """Say whether the table was written; it may hold no row all the same."""
        return self._open(name) is not None

    def rows(self, name: str) -> int:
        """Return how many rows a table has, by its log; none where there is no table."""
        table = self._open(name)
        if table is None:
            return 0
        with store_errors(self.where):
            return int(table.count())

    def files(self, name: str) -> dict[str, str]:
        """Return the addresses of a table's objects, each with a text: an object is never written again."""
        table = self._open(name)
        return {} if table is None else dict.fromkeys(table.file_uris(), "")

    def read(self, name: str) -> pads.Dataset | None:
        """Return a table as it is now, whatever is committed later; None where there is none."""
        table = self._open(name)
        if table is None:
            return None
        with store_errors(self.where):
            rows = table.to_pyarrow_dataset()
        if name != "rejects":
            return rows
        return rows.filter(pads.field(BATCH).isin(pa.array([batch.name for batch in self.committed()], pa.string())))

    @contextmanager
    def only_writer(self, what: str) -> Iterator[None]:
        """Let what this process writes meanwhile replace what is there now, and nothing that another one writes.

        No lock is held: a write raises `LakeBusy` where another process was quicker.
        """
        for name in TABLES:
            if (name in IN_BATCHES) == (what == "ingest"):
                self._held[name] = self._open(name)
        yield

    def replace(self, name: str, rows: pa.RecordBatchReader, days: Collection[str] | None = None) -> None:
        """Replace the whole table, or some days of it, by rows of its schema. Raises `LakeBusy` and `LakeError`."""
        listed = ", ".join(f"'{day}'" for day in days or ())
        self._commit(name, rows, instead_of=f"day in ({listed})" if listed else "true")
        self._remove_former(name, KEPT_HOURS)

    def remove_older_versions(self, name: str) -> None:
        """Remove what is no longer in the table, at once: who still reads it fails."""
        self._remove_former(name, 0)

    def committed(self) -> list[Batch]:
        """Return the notes of all committed batches, in the order of their names."""
        table = self._held.get("bronze") or self._open("bronze")
        if table is None:
            return []
        with store_errors(self.where):
            history, version = table.history(), table.version()
        if len(history) <= version:
            raise LakeError(
                f"the log of {self.address('bronze')} was shortened, and with it what was read: put back the objects "
                "of its _delta_log, or ingest everything into a lake of its own"
            )
        notes = [Batch.of_note(entry[NOTE]) for entry in history if NOTE in entry]
        return sorted(notes, key=lambda batch: batch.name)

    def append(self, batch: Batch, events: Rows, rejects: Rows) -> None:
        """Commit a batch. Raises `LakeBusy` where another process has committed one since `only_writer`."""
        if batch.rejects:
            # Also those of an earlier try are replaced.
            self._commit("rejects", _of_batch(rejects(), batch.name), instead_of=f"{BATCH} = '{batch.name}'")
        self._commit("bronze", events(), note=batch.note())

    def delete(self, name: str, condition: str) -> None:
        """Remove the rows of a table for which a condition in SQL holds, also from the store. Raises `LakeBusy`."""
        table = self._writable(name)
        if table is None:
            return
        with store_errors(self.where), self._alone(name):
            table.delete(condition, commit_properties=CommitProperties(max_commit_retries=0))
        self._remove_former(name, 0)

    def read_file(self, name: str) -> bytes | None:
        """Return the content of an object beside the tables; None where there is none."""
        return self.objects.read(name)

    def write_file(self, name: str, text: str) -> None:
        """Replace an object beside the tables in one step."""
        self.objects.write(name, text)

    def update_file(self, name: str, new: Callable[[bytes | None], str]) -> None:
        """Replace an object beside the tables by what `new` makes of its content, with no other update in between.

        What `new` raises leaves the object as it was. Raises `LakeBusy` where another process was quicker.
        """
        self.objects.update(name, new)

    def remove_file(self, name: str) -> None:
        """Remove an object beside the tables, if there is one."""
        self.objects.remove(name)

    def _writable(self, name: str) -> DeltaTable | None:
        return self._held[name] if name in self._held else self._open(name)

    def _open(self, name: str) -> DeltaTable | None:
        address = self.address(name)
        with store_errors(self.where):
            try:
                return DeltaTable(address, storage_options=self._options)
            except TableNotFoundError:
                return None

    def _commit(
        self, name: str, rows: pa.RecordBatchReader, *, note: str | None = None, instead_of: str | None = None
    ) -> None:
        """Add rows, or put them in the place of those for which a condition in SQL holds."""
        held = self._writable(name)
        rules = CommitProperties(max_commit_retries=0, custom_metadata=None if note is None else {NOTE: note})
        with store_errors(self.where), self._alone(name):
            if held is not None and instead_of is None:
                write_deltalake(held, rows, mode="append", writer_properties=_ZSTD, commit_properties=rules)
                return
            if held is not None:
                how: dict[str, Any] = {"predicate": instead_of, "writer_properties": _ZSTD, "commit_properties": rules}
                write_deltalake(held, rows, mode="overwrite", **how)
                return
            # Table and rows come in one commit: no reader finds the table without them.
            write_deltalake(
                self.address(name),
                rows,
                mode="error",
                partition_by=_partitions(name),
                configuration={**_NO_VALUES, **(_WHOLE_LOG if name == "bronze" else {})},
                storage_options=self._options,
                writer_properties=_ZSTD,
                commit_properties=rules,
            )
        self._held[name] = self._open(name)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Raise `LakeBusy` where another process has committed to the table."""
        try:
            yield
        except DeltaError as error:
            if isinstance(error, CommitFailedError) or "already exists" in str(error):
                raise LakeBusy(
                    f"another process has written {self.address(name)} meanwhile: nothing of this was kept; "
                    "try again when it has ended"
                ) from error
            raise

    def _remove_former(self, name: str, hours: int) -> None:
        table = self._held.get(name) or self._open(name)
        if table is not None:
            with store_errors(self.where):
                table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)


def _partitions(name: str) -> list[str] | None:
    if name == "rejects":
        return [BATCH]
    return ["day"] if name in BY_DAY else None


def _of_batch(rows: pa.RecordBatchReader, batch: str) -> pa.RecordBatchReader:
    """Return rows with the column that says of which batch they are."""
    schema = rows.schema.append(pa.field(BATCH, pa.string(), nullable=False))

    def marked() -> Iterable[pa.RecordBatch]:
        for some in rows:
            yield pa.record_batch([*some.columns, pa.array([batch] * some.num_rows, pa.string())], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, marked())
