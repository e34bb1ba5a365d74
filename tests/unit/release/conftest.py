"""The wheels of our packages, and environments with one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from testbed.distributions import Environment, Wheels


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    return Wheels.build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def installed(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Give the environment with a package and what it needs, and no more."""
    return cache(lambda package: wheels.install(package, tmp_path_factory.mktemp("alone")))
