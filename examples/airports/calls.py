"""The year's flights as a list of calls for `osrdyne replay`.

    python -m examples.airports.calls --key dest --out calls.csv

One call a flight, at its departure (UTC; where it never left, when it should have), in the order of time. The key is
its destination (105 keys) or its aircraft (over 4,000, most of them rare). The 2,512 flights whose aircraft was not
recorded, because they never left, are not calls of an aircraft and are left out.

`--scale N` makes a busier year of the same kind: beside the true flights, N - 1 further worlds in which every flight
leaves up to 15 minutes earlier or later, by chance, with keys of their own (`LAX-2` is the second world's LAX). So
there are N times as many keys and calls, and each key is called as in the true year. The same seed gives the same file.

Reads the installed data set; writes one CSV file, gzipped where its name says so.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import heapq
import io
import os
import random
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from examples.airports import cache
from examples.airports.prepare import MISSING
from osrdyne_runtime.console.streams import guarded

#: What can be the key: columns of the data set.
KEYS = ("dest", "tailnum")
#: Most seconds by which a flight of a further world leaves earlier or later.
JITTER = 15 * 60
DAY = 86_400

#: Seconds since the Unix epoch, and key.
Call = tuple[int, str]


def flights(source: str, column: str) -> list[Call]:
    """Return the departure of every flight of the data set at `source`, with its key, in the order of time."""
    found: list[Call] = []
    hours: dict[str, int] = {}
    with (
        zipfile.ZipFile(os.path.join(source, cache.FLIGHTS_FILE)) as archive,
        archive.open(archive.namelist()[0]) as packed,
    ):
        table = csv.reader(io.TextIOWrapper(packed, "utf-8", newline=""))
        header = next(table)
        places = [header.index(name) for name in (column, "time_hour", "minute", "dep_delay")]
        for row in table:
            key, hour, minute, late = (row[place] for place in places)
            if key in ("", MISSING):
                continue
            if hour not in hours:
                hours[hour] = int(datetime.fromisoformat(hour).timestamp())
            found.append((hours[hour] + 60 * (int(minute) + (0 if late in ("", MISSING) else int(late))), key))
    return sorted(found)


def scaled(calls: Iterable[Call], scale: int, seed: int) -> Iterator[Call]:
    """Yield the calls of `scale` worlds in the order of time; memory is that of half an hour."""
    chance = random.Random(seed)
    coming: list[Call] = []
    for at, key in calls:
        while coming and coming[0][0] < at - JITTER:
            yield heapq.heappop(coming)
        heapq.heappush(coming, (at, key))
        for world in range(2, scale + 1):
            heapq.heappush(coming, (at + chance.randint(-JITTER, JITTER), f"{key}-{world}"))
    while coming:
        yield heapq.heappop(coming)


def write(calls: Iterable[Call], path: str) -> int:
    """Write calls as CSV and return their number."""
    number = 0
    with _opened(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("time", "key"))
        for at, key in calls:
            number += 1
            rows.writerow((f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}", key))
    return number


@contextmanager
def _opened(path: str) -> Iterator[io.TextIOBase]:
    if not path.endswith(".gz"):
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
        return
    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        io.TextIOWrapper(packed, "utf-8", newline="") as file,
    ):
        yield file


def main(arguments: list[str] | None = None) -> None:
    """Read the arguments and write the file."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m examples.airports.calls",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--key", choices=KEYS, required=True, help="what a call's key is")
    parser.add_argument("--out", required=True, help="file to write: .csv or .csv.gz")
    parser.add_argument("--days", type=int, default=366, help="only the first days of the year")
    parser.add_argument("--scale", type=int, default=1, help="so many worlds (see below)")
    parser.add_argument("--seed", type=int, default=0, help="of the further worlds")
    given = parser.parse_args(arguments)
    if not given.out.endswith((".csv", ".csv.gz")):
        parser.error(f"--out {given.out}: is neither .csv nor .csv.gz")
    if given.days < 1 or given.scale < 1:
        parser.error("--days and --scale are 1 or more")
    try:
        true = flights(cache.source(), given.key)
    except cache.NoDataSet as error:
        sys.exit(f"calls: {error}")
    # The year begins at midnight in New York.
    end = int(datetime.fromisoformat("2013-01-01T00:00-05:00").timestamp()) + given.days * DAY
    number = write(scaled((call for call in true if call[0] < end), given.scale, given.seed), given.out)
    print(f"{given.out}: {number} calls")


if __name__ == "__main__":
    with guarded("airports"):
        main()
