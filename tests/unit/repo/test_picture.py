"""docs/demo.svg is what `make picture` draws: small, and of a run in which every request was answered rightly."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.text import Text

import picture
import steps

SVG = "{http://www.w3.org/2000/svg}"


def frames(drawn: str) -> list[list[str]]:
    """The lines of each frame; what stands apart in a line is kept apart by one blank."""
    root = ET.fromstring(drawn)  # noqa: S314 - our own file
    return [
        [" ".join(part.text or "" for part in line.iter(f"{SVG}tspan")) for line in group.iter(f"{SVG}text")]
        for group in root.iter(f"{SVG}g")
    ]


def test_the_picture_in_the_tree_is_small_and_ends_with_a_good_result() -> None:
    drawn = picture.PICTURE.read_text()
    *watched, result = frames(drawn)

    assert len(drawn) < 60_000
    assert len(watched) >= 5
    assert all(frame[0].startswith("$ osrdyne status --watch") for frame in watched)
    assert any("ready" in line for frame in watched for line in frame)
    assert re.fullmatch(r"demo: requests=(\d+) answered=\1 wrong=0 lost=0", result[-1])


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    assert re.findall(r"(?:href|src|url)\b", picture.PICTURE.read_text()) == []


def test_the_readme_shows_it() -> None:
    assert f"]({picture.PICTURE.relative_to(steps.ROOT)})" in Path(steps.ROOT, "README.md").read_text()


@pytest.mark.parametrize("number", [1, 3])
def test_each_frame_has_its_lines_with_signs_that_svg_reserves(number: int) -> None:
    shown = [picture.lines(Text(f"a < {frame} & b\n\n  key   state")) for frame in range(number)]

    assert frames(picture.draw(shown)) == [[f"a < {frame} & b", "key state"] for frame in range(number)]


def test_what_does_not_fit_is_counted() -> None:
    shown = picture.lines(Text("\n".join(f"line {number}" for number in range(50))))

    assert len(shown) == picture.LINES - 1
    assert shown[-1][0].text == f"... and {50 - len(shown) + 1} more"
