"""The base of all errors of the libraries, and the errors of a name, a key, a setting, a timeout or a process.

The text of every error says what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["InvalidKey", "InvalidPoolName", "InvalidTimeout", "MissingVariable", "OsrdyneError", "OtherProcess"]
__all__ += ["ProtocolError", "SettingsError"]


class OsrdyneError(Exception):
    """Something went wrong in osrdyne."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().partition("\n")[0])


class ProtocolError(OsrdyneError, ValueError):
    """Something breaks the wire contract."""


class InvalidKey(ProtocolError):
    """The key cannot be given to a worker: it holds NUL, is not UTF-8, or is longer than 255 bytes."""


class InvalidTimeout(ProtocolError):
    """A timeout is not a number of seconds above 0; nothing was sent."""


class OtherProcess(OsrdyneError):
    """This was opened in another process, of which this one is a fork: open another one after the fork."""


class InvalidPoolName(ProtocolError):
    """The pool name is not usable."""


class MissingVariable(ProtocolError):
    """A worker was started without one of its WORKER_* variables."""


class SettingsError(ProtocolError):
    """A setting is unknown, missing or of the wrong kind.

    `path` names the setting (`pool.unbind_delay`), `problem` what is wrong and what would be right.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it wraps, outermost first.

    Libraries keep what went wrong as causes, attributes or arguments.
    """
    seen: set[int] = set()
    queue = [error]
    for found in queue:
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        wrapped = (
            *found.args,
            *getattr(found, "exceptions", ()),
            getattr(found, "exception", None),
            getattr(found, "reason", None),
            found.__cause__,
            found.__context__,
        )
        queue.extend(item for item in wrapped if isinstance(item, BaseException))
