"""Which reader reads which part, and which options there are: no Spark, no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source import address
from osrdyne_pipeline.source.options import SourceOptions
from osrdyne_pipeline.source.ranges import LEAST, OffsetRange, plan


def test_ranges_cover_every_offset_once() -> None:
    for readers in (1, 2, 3, 7):
        parts = plan(10, 10 + 5 * LEAST + 3, 0, readers)
        assert [part.start for part in parts] == [10, *(part.end for part in parts[:-1])]
        assert parts[-1].end == 10 + 5 * LEAST + 3
        assert len(parts) == min(readers, 5)


def test_what_retention_took_is_a_range_of_its_own() -> None:
    assert plan(5, 100, 40, 1) == [OffsetRange(5, 40, lost=True), OffsetRange(40, 100)]
    assert plan(5, 30, 40, 1) == [OffsetRange(5, 30, lost=True)]
    assert plan(40, 100, 40, 1) == [OffsetRange(40, 100)]


def test_nothing_to_read_gives_no_range() -> None:
    assert plan(7, 7, 0, 4) == []
    assert plan(7, 7, 9, 4) == []


@pytest.mark.parametrize("name", ["uri", "URI", "password", "user"])
def test_a_credential_is_refused_as_an_option_and_not_shown(name: str) -> None:
    with pytest.raises(SourceError, match="uri_file") as caught:
        SourceOptions.of({"pool": "core", name: "amqp://u:geheim@h/"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "given, says",
    [
        ({}, "name what to read"),
        ({"pool": "core", "path": "x"}, "name what to read"),
        ({"pool": "core", "onGap": "shrug"}, "onGap"),
        ({"pool": "core", "startingOffset": "-1"}, "startingOffset"),
        ({"pool": "core", "maxEventsPerBatch": "many"}, "maxEventsPerBatch"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(given: dict[str, str], says: str) -> None:
    with pytest.raises(SourceError, match=says):
        SourceOptions.of(given)


def test_options_are_read_whatever_their_case() -> None:
    options = SourceOptions.of({"Pool": "core", "STARTINGOFFSET": "5", "endingoffset": "last", "onGap": "record"})
    assert (options.stream, options.source, options.start, options.end) == ("core-events", "core-events", 5, None)
    assert options.on_gap == "record"


def test_files_are_named_a_line_each() -> None:
    assert SourceOptions.of({"path": "/a b\n/c\u2028d"}).paths == ("/a b", "/c\u2028d")


def test_the_address_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uri").write_text("amqp://a:b@file/\n")
    monkeypatch.delenv(address.VARIABLE, raising=False)
    with pytest.raises(SourceError, match="uri_file"):
        address.read(None)
    with pytest.raises(SourceError, match="No such file"):
        address.read(str(tmp_path / "absent"))
    monkeypatch.setenv(address.VARIABLE, "amqp://a:b@variable/")
    assert address.read(None) == "amqp://a:b@variable/"
    assert address.read(str(tmp_path / "uri")) == "amqp://a:b@file/"
