"""What to read: the options of a source, also of `osrdyne_events`, which has them of Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from osrdyne_pipeline.errors import SourceError
from osrdyne_protocol.names import PoolNames

ERROR = "error"
RECORD = "record"

#: Never options: they would show in plans.
SECRET = ("uri", "password", "user", "username")


@dataclass(frozen=True)
class SourceOptions:
    """What to read. `stream` for a broker, `paths` for files; one of both."""

    #: The stream's name; from option `stream`, or `pool`, whose stream it then is.
    stream: str = ""
    #: Files or folders; of Spark's `path`, one a line.
    paths: tuple[str, ...] = ()
    #: Path -> what the column `source` says; the path itself by default. Not an option of Spark.
    names: Mapping[str, str] = field(default_factory=dict)
    #: Option `uri_file`: the file that holds the broker's address; see address.py.
    uri_file: str | None = None
    #: `startingOffset`: an offset, or `first` (None). Later runs of a streaming query go on where they stopped.
    start: int | None = None
    #: `endingOffset`: the offset before which a batch ends, or `last` (None): what there is when it begins.
    end: int | None = None
    #: `maxEventsPerBatch` of a streaming query; 0 for no bound.
    most: int = 0
    #: `onGap`: `error`, or `record`: a row with a problem for what retention took before it was read.
    on_gap: str = ERROR
    #: `readers`: at most so many ranges, which Spark reads at once.
    readers: int = field(default_factory=lambda: os.cpu_count() or 1)
    #: What the column `source` says of a stream. Not an option of Spark, which has the stream's name there.
    source: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Return the options. Raises `SourceError` with what is wrong."""
        options = {name.lower(): value for name, value in given.items()}
        if found := [name for name in SECRET if name in options]:
            raise SourceError(f"option {found[0]}: a credential in an option shows in plans; see option uri_file")
        paths = tuple(filter(None, options.get("path", "").split("\n")))
        stream = options.get("stream") or (PoolNames(options["pool"]).events_stream if "pool" in options else "")
        if bool(paths) == bool(stream):
            raise SourceError("name what to read: option pool (or stream) for a broker's, or path for files")
        on_gap = options.get("ongap", ERROR)
        if on_gap not in (ERROR, RECORD):
            raise SourceError(f"option onGap is {on_gap!r}: {ERROR!r} or {RECORD!r}")
        return cls(
            stream=stream,
            paths=paths,
            uri_file=options.get("uri_file"),
            start=_offset(options, "startingOffset", "first"),
            end=_offset(options, "endingOffset", "last"),
            most=_number(options, "maxEventsPerBatch", 0),
            on_gap=on_gap,
            readers=max(1, _number(options, "readers", os.cpu_count() or 1)),
            source=stream,
        )


def _offset(options: Mapping[str, str], name: str, word: str) -> int | None:
    return None if options.get(name.lower(), word) == word else _number(options, name, 0)


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit():
        raise SourceError(f"option {name} is {text!r}: a whole number that is not negative")
    return int(text)
