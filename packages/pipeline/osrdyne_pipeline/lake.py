"""Where tables are, and how they are read and replaced: `LAKE/POOL/NAME`, a folder of Parquet files each.

A table is enforced when it is written: the columns of its schema, by name and type, and a value wherever one is
required. It is written beside what is there, and then takes its place in one step: a reader sees the old table or the
new one, whole. For that a table's name is a symbolic link to a version of it in `LAKE/POOL/versions`; the version
before stays until the next one is there, for readers that have begun. Such a lake is a folder of a file system that all
who read and write it share. In an object store nothing can take a place in one step: `store` has lakes there.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from osrdyne_pipeline import places
from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.schemas import TABLES
from osrdyne_protocol.names import check_pool_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from osrdyne_pipeline.store.opening import AnyLake

#: Tables of which a day is a folder `day=YYYY-MM-DD`, so that a question about some days reads no other.
BY_DAY = frozenset({"bronze", "silver/events", "silver/requests", "silver/lives"})

#: Tables to which ingest adds, a folder `batch=NAME` each time.
IN_BATCHES = frozenset({"bronze", "rejects"})


class Lake:
    """The tables of one pool. Makes no folder until something is written.

    Raises `InvalidPoolName` for what is not a pool name, and `LakeError` for a root that is an address.
    """

    def __init__(self, root: Path | str, pool: str) -> None:
        if wrong := places.problem(root):
            raise LakeError(f"no lake can be there: {wrong}")
        self.pool = check_pool_name(pool)
        self.home = Path(root).absolute() / pool

    def path(self, name: str) -> Path:
        """Return where the table `name` is or will be. Raises `LakeError` for a name that no table has."""
        return self.home / known(name)

    @property
    def where(self) -> str:
        """Where the pool's tables are, as people are shown it."""
        return str(self.home)

    def rows(self, name: str) -> int:
        """Return how many rows a table has, by what its files say; none where there is no table. Raises `LakeError`."""
        path = self.path(name)
        return sum(_rows_in(file) for file in (path.resolve().rglob("*.parquet") if path.is_dir() else ()))

    def files(self, name: str) -> dict[str, str]:
        """Return the files of a table below its folder, each with a text that is another one where it was written."""
        home = self.path(name).resolve()
        seen = {str(file.relative_to(home)): file.stat() for file in home.rglob("*.parquet")}
        return {file: f"{stat.st_size} {stat.st_mtime_ns}" for file, stat in seen.items()}

    def check_writable(self) -> None:
        """Write nothing, and raise `LakeError`, with what to do, where nothing can be written."""
        place = self.home
        while not os.path.lexists(place):
            place = place.parent
        if not place.is_dir():
            raise LakeError(f"no lake can be in {self.home}: {place} is not a folder; give another --lake")
        try:
            # A file without a name, of which nothing stays: a file system may refuse what its permissions allow.
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as error:
            raise LakeError(
                f"no lake can be in {self.home}: {place} cannot be written ({error.strerror}); give another --lake, "
                "or the right to write there"
            ) from error

    def exists(self, name: str) -> bool:
        """Say whether the table was written; it may hold no row all the same."""
        return self.path(name).is_dir()

    def read_file(self, name: str) -> bytes | None:
        """Return the content of a file beside the tables; None where there is none."""
        try:
            return (self.home / name).read_bytes()
        except FileNotFoundError:
            return None

    def write_file(self, name: str, text: str) -> None:
        """Replace a file beside the tables in one step."""
        replace_file(self.home / name, text)

    def update_file(self, name: str, new: Callable[[bytes | None], str]) -> None:
        """Replace a file beside the tables by what `new` makes of its content, with no other update in between.

        What `new` raises leaves the file as it was. Raises `LakeBusy` where another process updates one.
        """
        with self.only_writer("update"):
            self.write_file(name, new(self.read_file(name)))

    def remove_file(self, name: str) -> None:
        """Remove a file beside the tables, if there is one."""
        (self.home / name).unlink(missing_ok=True)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """Return the table; one without rows where it was not written yet."""
        from osrdyne_pipeline.spark import rows as spark_rows  # only where there is a Spark

        path = self.path(name)
        # The version itself: what its name stands for may change before Spark opens the files.
        return spark_rows.read_rows(spark, name, path.resolve() if path.is_dir() else None)

    def write(self, name: str, rows: DataFrame, days: Collection[str] | None = None) -> None:
        """Replace the whole table, or some days of it, by `rows`, which may come from the table itself.

        Raises `LakeError` where columns differ from the table's schema; Spark's error names the column where a
        required value is missing.
        """
        from osrdyne_pipeline.spark import rows as spark_rows  # only where there is a Spark

        with self.version(name, days) as aside:
            spark_rows.write_rows(name, rows, aside / "batch=written" if name in IN_BATCHES else aside)

    @contextmanager
    def version(self, name: str, days: Collection[str] | None = None) -> Iterator[Path]:
        """Give an empty folder to be filled, which then becomes the table; removed where that fails.

        With days, only those are to be filled. The files of all others get a second name.
        """
        path = self.path(name)
        versions = self.home / "versions"
        aside = versions / f"{name.replace('/', '.')}-{time.time_ns():020d}-{secrets.token_hex(4)}"
        aside.mkdir(parents=True)
        try:
            yield aside
            if days is not None:
                others = shutil.ignore_patterns("[._]*", *(f"day={day}" for day in days))
                shutil.copytree(path.resolve(), aside, ignore=others, copy_function=os.link, dirs_exist_ok=True)
            self._point(path, aside)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def _point(self, path: Path, aside: Path) -> None:
        """Let the table's name stand for another version, and remove those before the last."""
        before = path.resolve() if path.is_symlink() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        link = aside.with_name(aside.name + ".link")
        link.symlink_to(os.path.relpath(aside, path.parent))
        # A rename replaces what bears the name in one step.
        link.replace(path)
        self._remove_versions(aside, but=before)

    def remove_older_versions(self, name: str) -> None:
        """Remove also the version before the last, at once: who still reads it fails."""
        self._remove_versions(self.path(name).resolve(), but=None)

    @staticmethod
    def _remove_versions(last: Path, *, but: Path | None) -> None:
        # What has another name, no version had: it is left alone.
        ours = re.compile(re.escape(last.name.rsplit("-", 2)[0]) + r"-[0-9]{20}-[0-9a-f]{8}")
        for old in last.parent.iterdir():
            if ours.fullmatch(old.name) and old != but and old.name < last.name:
                shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def only_writer(self, what: str) -> Iterator[None]:
        """Hold the lake's lock `what` meanwhile; it ends with the process, however that ends.

        Raises `LakeBusy` where another process holds it.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / f"_{what}.lock"
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise LakeBusy(
                    f"another {what} (process {file.read().strip() or 'unknown'}) writes to {self.home}: wait for it, "
                    "or end it; its work is not lost"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def replace_file(file: Path, text: str) -> None:
    """Write a file in one step: a reader sees the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def in_folder(lake: AnyLake) -> Lake:
    """Return a lake that Spark can use. Raises `LakeError` for one in an object store."""
    if isinstance(lake, Lake):
        return lake
    raise LakeError(
        f"{lake.where} is in an object store, where DuckDB makes the tables: give --engine duckdb and no --master. "
        "Spark makes those of a folder, and reads these with the jars of Delta Lake"
    )


def known(name: str) -> str:
    """Return the name of a table. Raises `LakeError` for a name that no table has."""
    if name not in TABLES:
        raise LakeError(f"there is no table {name!r}: one of {', '.join(sorted(TABLES))}")
    return name


def _rows_in(file: Path) -> int:
    # Opened here: Arrow knows no path that is not UTF-8.
    with undamaged(file), file.open("rb") as opened:
        return int(pq.read_metadata(opened).num_rows)


@contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """Raise `LakeError`, with what to do, where this file of a table cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise LakeError(
            f"{file} cannot be read ({error}): put back a copy of it, or remove the folder of its batch, batch=NAME, "
            "and ingest the batch's files again"
        ) from error
