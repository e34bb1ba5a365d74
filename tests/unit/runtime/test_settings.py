"""The strict model of settings, and the one line about what is wrong in them, which shows no value."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field

from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings.model import Seconds, StrictModel


def _checked(value: str) -> str:
    if value == "s3cret":
        raise ValueError("is known to all")
    if value == "template":
        raise SettingsError("tables.image", "is not there")
    return value


class Table(StrictModel):
    needed: Annotated[str, AfterValidator(_checked)] = ""
    pause: Annotated[Seconds, Field(gt=0, le=60)] = 1.0
    names: tuple[str, ...] = ()
    labels: dict[str, int] = Field(default_factory=dict)
    made: str = Field(default="", exclude=True)


class Whole(StrictModel):
    name: str
    tables: Table = Table()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (5, "top: is not a table of name, tables"),
        ({}, "top.name: is missing"),
        ({"name": "a", "tabels": 1}, "top.tabels: is not a setting; known are name, tables"),
        ({"name": "a", "tables": 1}, "top.tables: is not a table of needed, pause, names, labels"),
        ({"name": "a", "tables": {"tables": 1}}, "top.tables.tables: is not a setting; known are needed, pause, "),
        ({"name": "a", "tables": {"made": "x"}}, "top.tables.made: is not a setting; known are needed, pause, "),
        ({"name": "a", "tables": {"needed": "s3cret"}}, "top.tables.needed: is known to all"),
        ({"name": "a", "tables": {"needed": "template"}}, "top.tables.image: is not there"),
        ({"name": "a", "tables": {"names": "s3cret"}}, "top.tables.names: is not a list"),
        ({"name": "a", "tables": {"names": ["a", 5]}}, "top.tables.names[1]: Input should be a valid string"),
        ({"name": "a", "tables": {"labels": 5}}, "top.tables.labels: is not a table of names and values"),
        ({"name": "a", "tables": {"pause": "P30D"}}, "top.tables.pause: Input should be less than or equal to 60"),
        ({"name": "a", "tables": {"pause": 0}}, "top.tables.pause: Input should be greater than 0"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_path_of_the_setting(values: Any, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Whole.from_mapping(values, path="top")

    assert str(caught.value).startswith(line)
    assert "s3cret" not in str(caught.value)


def test_a_duration_is_seconds_or_iso_8601_and_a_model_does_not_change() -> None:
    made = Whole.from_mapping({"name": "a", "tables": {"pause": "PT5.5S"}})

    assert made.tables.pause == 5.5
    with pytest.raises(ValueError, match="frozen"):
        made.name = "b"


def test_a_table_of_a_driver_of_others_may_have_aliases_and_names_that_are_not_known() -> None:
    class Driver(StrictModel):
        image: str = Field(alias="image-name")

    class Open(StrictModel, extra="allow"):
        image: str

    assert Driver.from_mapping({"image-name": "a"}).image == "a"
    assert Open.from_mapping({"image": "a", "more": 1}).model_extra == {"more": 1}
    with pytest.raises(SettingsError, match="image: is not a setting; known are image-name"):
        Driver.from_mapping({"image": "a"})
