"""Names of images are read as engines read them."""

from __future__ import annotations

import pytest

from osrdyne_pool.images import problem


@pytest.mark.parametrize(
    "name",
    [
        "core",
        "core:1.4",
        "library/core_worker.v2--x:V1.4",
        "localhost/core:1",
        "Registry.Example:5000/team/core:1.4",
        "REGISTRY/core:1",
        "core@sha256:" + "a" * 64,
        "registry.example/core:1@sha256:" + "0" * 64,
        "sha256:" + "f" * 64,
    ],
)
def test_a_name_that_engines_take_has_no_problem(name: str) -> None:
    assert problem(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Core:1", "has upper-case letters"),
        ("registry.example/team/Core:1", "has upper-case letters"),
        ("registry.example/Core", "has upper-case letters"),
        ("core:", "is not the name of an image"),
        ("core:-1", "is not the name of an image"),
        ("core worker:1", "is not the name of an image"),
        ("core@sha256:abc", "is not the name of an image"),
        ("http://registry.example/core:1", "is not the name of an image"),
        ("core:1\n", "is not the name of an image"),
        ("/core", "is not the name of an image"),
    ],
)
def test_a_name_that_engines_refuse_is_refused_with_what_is_wrong(name: str, words: str) -> None:
    assert words in (problem(name) or "")
