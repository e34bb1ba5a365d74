"""Names that a target may have."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_bus.errors import InvalidTarget
from osrdyne_bus.targets import MOST_NAME, Target

BAD: dict[str, Any] = {
    "empty": "",
    "with a NUL": "a\0b",
    "too long": "é" * (MOST_NAME // 2) + "x",
    "no UTF-8": "\ud800",
    "no text": 5,
    "bytes": b"maps",
}


@pytest.mark.parametrize("name", BAD.values(), ids=list(BAD))
def test_a_name_that_cannot_be_sent_is_refused_with_the_name_of_its_field(name: str) -> None:
    with pytest.raises(InvalidTarget, match=r"^topic "):
        Target(name)
    with pytest.raises(InvalidTarget, match=r"^exchange "):
        Target("maps", name)
    with pytest.raises(InvalidTarget, match=r"^server "):
        Target("maps", server=name)


def test_the_longest_names_are_taken() -> None:
    longest = "é" * (MOST_NAME // 2)

    assert Target(longest, longest, longest).server == longest
