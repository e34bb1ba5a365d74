"""Errors of the pipeline. A command shows their text, which says what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline cannot go on. Without a message, the docstring of the class is the message."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class LakeError(PipelineError):
    """A table cannot be read or written as it should be."""


class LakeBusy(LakeError):
    """Another process writes to this lake."""


class SourceError(PipelineError):
    """The stream or the files cannot be read."""


class BrokerAway(SourceError):
    """The broker cannot be reached, or has not answered: trying again may help."""


class EventsLost(SourceError):
    """The stream no longer has events that were not read yet."""


class StreamChanged(SourceError):
    """The stream is not the one that was read before."""
