"""What `osrdyne_jobs` gives a program by name, imported at its first use."""

from __future__ import annotations

import pytest

import osrdyne_jobs


@pytest.mark.parametrize("name", osrdyne_jobs.__all__)
def test_each_name_of_the_package_is_there(name: str) -> None:
    assert getattr(osrdyne_jobs, name).__name__ == name


def test_another_name_is_an_error_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'osrdyne_jobs' has no attribute 'nothing'"):
        _ = osrdyne_jobs.nothing
