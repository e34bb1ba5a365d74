"""What the API takes and returns. Times are those of the database's clock, as ISO 8601 texts in UTC."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from osrdyne_jobs import documents
from osrdyne_jobs.job_types import MOST_ID

State = Literal["registered", "running", "failed", "parked", "done", "cancelled"]


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds NUL, which no name has")
    return text


def _moment(time: Any) -> Any:
    return documents.moment(time) if isinstance(time, float) else time


#: A time, which the database has in seconds since the Unix epoch.
Time = Annotated[str, BeforeValidator(_moment), Field(json_schema_extra={"format": "date-time"})]
#: A type or resource that is looked for.
Name = Annotated[str, AfterValidator(_without_nul)]


class JobPath(BaseModel):
    """A job of which a path has the id."""

    id: int = Field(ge=1, le=MOST_ID, description="The id of a job.")


class Question(BaseModel):
    """What a list is to have."""

    type: Name | None = None
    resource: Name | None = None
    state: State | None = None
    older_than: float | None = Field(None, ge=0, allow_inf_nan=False, description="Seconds since the registration.")
    history: bool = Field(False, description="Look into the history, where jobs move after their end.")
    after: int = Field(0, ge=0, le=MOST_ID, description="Only jobs with a larger id.")
    most: int = Field(100, ge=1, le=1000, description="Most jobs of an answer.")


class Run(BaseModel):
    """An attempt of a job."""

    token: int = Field(description="The fencing token; later runs have larger ones.")
    worker: str
    began_at: Time
    ended_at: Time | None = Field(description="Null while it runs.")
    outcome: str | None = Field(description="done, failed, cancelled, or lost (the worker did not renew its lease).")
    reason: str | None
    traceback: str | None = Field(description="Of the exception that the handler raised; its end, where it is long.")


class Job(BaseModel):
    """A job in a list."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    type: str
    resource: str
    coalesce: bool = Field(description="Whether one run does all jobs of this type and resource that wait.")
    state: State
    attempts: int = Field(description="Runs that began.")
    max_attempts: int
    registered_at: Time
    begin_after: Time = Field(description="The job does not begin earlier: the pause between two attempts.")
    due_at: Time = Field(description="When redo casts the job (again), where it waits.")
    run_id: int | None = Field(description="The fencing token of its last run.")
    cancel: bool = Field(description="Whether it was cancelled while it ran.")
    finished_at: Time | None
    reason: str | None = Field(
        description="Why the last attempt failed; while it is registered, why no worker could begin it."
    )


class WholeJob(Job):
    """A job with its payload and its attempts."""

    payload: Any
    runs: list[Run] = Field(description="The attempts, oldest first.")


class Page(BaseModel):
    """Some jobs, in the order of their registration."""

    jobs: list[Job]
    next: int | None = Field(
        description="What to give as `after` for the jobs behind these; null where there are none."
    )


class NewJob(BaseModel):
    """What is registered."""

    model_config = ConfigDict(extra="forbid")

    type: str
    resource: str
    payload: Any


class Registered(BaseModel):
    """A job that was registered."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    type: str
    resource: str


class Cancelled(BaseModel):
    """The outcome of a cancellation."""

    id: int
    cancelled: bool = Field(description="True: it is cancelled. False: it runs, and its worker hears of it.")


class Schema(BaseModel):
    """A type of job that this server can register."""

    name: str
    coalesce: bool
    max_attempts: int
    payload: dict[str, Any] = Field(description="The JSON schema of a payload.")


class InState(BaseModel):
    """The jobs of a state, without the history."""

    model_config = ConfigDict(from_attributes=True)

    state: State
    jobs: int
    oldest: int | None = Field(description="Id of the job that was registered first.")
    age: float | None = Field(description="Seconds since its registration.")


class Cause(BaseModel):
    """Jobs of one type that failed or are parked for the same reason, but for numbers and quoted values."""

    model_config = ConfigDict(from_attributes=True)

    type: str
    reason: str = Field(description="The first line of the reason of the latest one.")
    jobs: int
    latest: int = Field(description="Id of the latest one.")


class Figures(BaseModel):
    """Figures of all jobs, without the history."""

    states: list[InState]
    redo_lag: float = Field(description="Seconds for which the most overdue job has waited for redo.")
    runs: dict[str, int] = Field(description="Runs that ended within the last hour, by outcome.")
    expired_leases: int = Field(description="Runs whose lease has ended and that nothing has settled yet.")
    causes: list[Cause] = Field(description="Why jobs failed or are parked, the most frequent causes first.")
