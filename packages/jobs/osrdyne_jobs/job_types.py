"""Types of jobs: a name, the schema of the payload, and how its jobs are run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from osrdyne_jobs.errors import InvalidJob
from osrdyne_protocol import keys
from osrdyne_protocol.errors import InvalidKey

#: Names of types are part of messages, metrics and commands.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Most bytes of a payload as JSON. A job says what to do; large data belongs into a store of its own.
MOST_PAYLOAD = 65_536
#: Largest id of a job, in 64 bits.
MOST_ID = 2**63 - 1
#: Most seconds that a job may wait to be cast, or a lease last: a year.
MOST_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True)
class JobType:
    """A type of job. Declare it once, in a module that clients and workers import."""

    name: str
    #: What a payload is: a pydantic model, or any other type that pydantic knows, as `dict[str, int]`.
    payload: Any = field(default=dict[str, Any], compare=False)
    #: Jobs of one resource that wait are done by one run.
    coalesce: bool = False
    #: Runs of a job before it is parked.
    max_attempts: int = 5
    _adapter: TypeAdapter[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise InvalidJob for what is not a declaration."""
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidJob("type", f"{self.name!r} is not a name of a type: use letters, digits, and . _ -")
        most: object = self.max_attempts
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise InvalidJob("type", f"{self.name} needs max_attempts, an integer of at least 1, not {most!r}")
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.payload)
        except PydanticUserError as error:
            raise InvalidJob("type", f"the payload of {self.name} is not a type that pydantic knows: {error}") from None
        object.__setattr__(self, "_adapter", adapter)  # made once: that takes longer than many payloads

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a payload."""
        return self._adapter.json_schema()

    def encode(self, payload: Any) -> str:
        """Return a payload as JSON. Raises InvalidJob, which names the field of the payload that is wrong."""
        try:
            valid = self._adapter.validate_python(payload)
            text = self._adapter.dump_json(valid, by_alias=True).decode()
        except ValidationError as error:
            raise InvalidJob(*_first_problem(error)) from None
        except (TypeError, ValueError) as error:  # pydantic's PydanticSerializationError is a ValueError
            raise InvalidJob("payload", f"it cannot be written as JSON: {error}") from None
        size = len(text.encode("utf-8", "replace"))
        if size > MOST_PAYLOAD:
            raise InvalidJob("payload", f"it has {size} bytes as JSON; a job takes {MOST_PAYLOAD}")
        # As JSON, NaN and a SecretStr are something else.
        if self.decode(text) != valid:
            raise InvalidJob("payload", "a worker would read another value from its JSON; use values that JSON has")
        return text

    def decode(self, text: str) -> Any:
        """Return the payload of a job. Raises InvalidJob where an older job does not fit today's schema."""
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise InvalidJob(*_first_problem(error)) from None


class JobTypes:
    """The types that a program knows, by name."""

    def __init__(self, types: Iterable[JobType]) -> None:
        self._types: dict[str, JobType] = {}
        for declared in types:
            if declared.name in self._types:
                raise InvalidJob("type", f"{declared.name} is declared twice")
            self._types[declared.name] = declared

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._types.values())

    def get(self, name: Any) -> JobType:
        """Return a type. Raises InvalidJob for an unknown one."""
        if not isinstance(name, str) or name not in self._types:
            known = ", ".join(sorted(self._types)) or "none"
            raise InvalidJob("type", f"{name!r} is unknown; known are: {known}")
        return self._types[name]


def check_resource(resource: str) -> str:
    """Return a resource, which is the key of a worker group. Raises InvalidJob for what cannot be a key."""
    try:
        return keys.decode(resource)
    except InvalidKey as error:
        raise InvalidJob("resource", f"it cannot be the key of a worker group: {error}") from None


def check_id(id: Any) -> int:  # noqa: A002
    """Return an id of a job. Raises InvalidJob for what can be none: a database takes "1", and some take True for 1."""
    if isinstance(id, bool) or not isinstance(id, int) or not 0 < id <= MOST_ID:
        raise InvalidJob("id", f"{id!r:.40} is not a whole number from 1 to {MOST_ID}")
    return int(id)


def check_seconds(name: str, seconds: Any) -> float:
    """Return a time that a database can add to its clock. Raises InvalidJob for another, and for more than a year."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) <= MOST_SECONDS:
        raise InvalidJob(name, f"{seconds!r} is not a number of seconds, up to {MOST_SECONDS}")
    return float(seconds)


def _first_problem(error: ValidationError) -> tuple[str, str]:
    first = error.errors(include_url=False)[0]
    return ".".join(["payload", *map(str, first["loc"])]), first["msg"]
