"""What can be wrong with a job. Every text says what to do."""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError


class JobError(OsrdyneError):
    """Something is wrong with a job."""


class InvalidJob(JobError, ValueError):
    """A job cannot be registered: nothing was written. `field` names what is wrong: type, resource or payload."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidAddress(JobError, ValueError):
    """The address of a database cannot be read, or has what it cannot have."""


class UnknownJob(JobError, LookupError):
    """There is no job of this id. Finished jobs are deleted after the time that the settings give."""


class WrongState(JobError):
    """The state of the job does not allow this."""


class LeaseLost(JobError):
    """This run no longer has the lock of its resource: another worker may have begun the job again. Write nothing."""


class NoSchema(JobError):
    """The database has not the tables of this version: make them with `osrdyne jobs migrate`."""


class DatabaseRefused(JobError):
    """PostgreSQL refuses this program: it needs another user, password or database, or the right to connect."""


class NotRegistered(JobError):
    """The database did not take the job. Where its answer to the commit was lost, the job may be there all the same."""


class NoAnswer(JobError):
    """The database is away, refuses, or did not answer in time. A change may have been made all the same: look."""


class CannotServe(JobError):
    """The administration cannot be served over HTTP."""


class NotPrepared(JobError):
    """The database of a pool's jobs, or its users, could not be made on a PostgreSQL server."""
