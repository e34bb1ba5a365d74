"""A value that is not text, where a name is expected, is an error of the package and not of Python."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_jobs.errors import InvalidJob
from osrdyne_jobs.job_types import JobType, check_resource
from osrdyne_protocol.errors import InvalidPoolName
from osrdyne_protocol.names import DatabaseNames, PoolNames


@pytest.mark.parametrize("value", [5, None, ["a"], 1.5])
def test_a_resource_or_a_type_that_is_not_text_is_an_invalid_job(value: Any) -> None:
    with pytest.raises(InvalidJob, match="a key is text"):
        check_resource(value)
    with pytest.raises(InvalidJob, match="is not a name of a type"):
        JobType(value)


@pytest.mark.parametrize("value", ["5", None, True, 0, 2.5])
def test_a_number_of_attempts_that_is_none_is_an_invalid_job(value: Any) -> None:
    with pytest.raises(InvalidJob, match="needs max_attempts, an integer of at least 1"):
        JobType("a", max_attempts=value)


@pytest.mark.parametrize("value", [5, None, b"core", ["core"]])
def test_a_pool_that_is_not_text_is_an_invalid_pool_name(value: Any) -> None:
    for names in (PoolNames, DatabaseNames.of):
        with pytest.raises(InvalidPoolName):
            names(value)
