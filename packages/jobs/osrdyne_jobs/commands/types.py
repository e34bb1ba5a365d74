"""The types of jobs that a program declares, which `create` and `schemas` load from it."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path
from typing import Any

from osrdyne_jobs.job_types import JobType, JobTypes
from osrdyne_runtime.console.output import CannotAsk


def load(place: str | None) -> JobTypes:
    """Return the types of an object, MODULE:NAME: an iterable of JobType, or a mapping with such keys.

    The module is also looked for in the current directory. Raises CannotAsk, and InvalidJob for a type that is declared
    twice.
    """
    if place is None:
        raise CannotAsk("no types of jobs are named; give --types MODULE:NAME, or set OSRDYNE_JOBS_TYPES")
    module, colon, name = place.partition(":")
    if not module or not colon or not name:
        raise CannotAsk(f"--types {place!r}: give MODULE:NAME")
    return JobTypes(_checked(place, _found(place)))


def _found(place: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return pkgutil.resolve_name(place)
    except Exception as error:  # noqa: BLE001 - whatever a module of the user's raises
        raise CannotAsk(f"--types {place} cannot be loaded: {type(error).__name__}: {error}") from None


def _checked(place: str, found: Any) -> list[JobType]:
    try:
        types = list(found)
    except TypeError:
        types = [None]
    if not all(isinstance(declared, JobType) for declared in types):
        raise CannotAsk(f"--types {place} is neither an iterable of JobType nor a mapping with such keys") from None
    return types
