"""What the state of a stack names: Pulumi keeps classes of resources of our own by their modules."""

from __future__ import annotations

import pkgutil

import pytest

#: As stacks that exist have them. `pulumi destroy` loads them by these names.
NAMES = (
    "osrdyne_infra.guard:Provider",
    "osrdyne_infra.guard:_Claims",
    "osrdyne_infra.guard:_Guards",
    "osrdyne_infra.jobs_database:_Databases",
    "osrdyne_infra.limits:_Limits",
    "osrdyne_infra.mend:_Mends",
    "osrdyne_infra.password:_Provider",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_the_state_of_a_stack_names_is_where_it_was(name: str) -> None:
    found = pkgutil.resolve_name(name)
    assert f"{found.__module__}:{found.__qualname__}" == name
