"""Errors of the pipeline that somebody catches: a command shows their text, which says what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline cannot go on. The docstring is the message where none is given."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class LakeError(PipelineError):
    """A table cannot be read or written as it should be."""


class LakeBusy(LakeError):
    """Somebody else writes here."""


class SourceError(PipelineError):
    """The stream or the files cannot be read."""


class BrokerAway(SourceError):
    """The broker cannot be reached, or has not answered: trying again may help."""


class EventsLost(SourceError):
    """The stream no longer has events that were not read yet."""


class StreamChanged(SourceError):
    """The stream is not the one that was read before."""
