"""The one reader of secrets: its rules, and that each program of ours says the same of the same mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne.base import credentials
from osrdyne_amqp.address import from_file, present
from osrdyne_bus.peers import peers_of
from osrdyne_jobs.commands.database import address as database_address
from osrdyne_jobs.database.engines import engine_for, engine_from_environment
from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source import address as events_address
from osrdyne_protocol.errors import OsrdyneError, SettingsError
from osrdyne_relay.client.addresses import Nodes
from osrdyne_relay.settings import RedisSettings
from osrdyne_runtime.console import broker_address
from osrdyne_runtime.settings import secrets

#: Where programs take a secret from a file: what reads it, by the file's path.
READERS: dict[str, Callable[[Path], object]] = {
    "runtime": lambda file: secrets.in_file(file, "setting"),
    "daemon": lambda file: credentials.address(None, file, "broker.amqp_uri")(),
    "amqp": lambda file: present(from_file(file)),
    "bus": lambda file: peers_of(from_file(file)),
    "commands": lambda file: broker_address.chosen(
        SimpleNamespace(get_parameter_source=lambda _: None), None, file, variable="V"
    ),
    "jobs": database_address,
    "pipeline": lambda file: events_address.read(str(file)),
    "relay": lambda file: RedisSettings(url_file=file).address(),
    "relay's client": lambda file: Nodes("http://h", token_file=file).authorization(),
}


@pytest.mark.parametrize("who", READERS)
def test_each_program_says_the_same_of_a_file_without_a_secret(who: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\ufeff\n \n")
    (tmp_path / "binary").write_bytes(b"amqp://u:pass\xff@h")
    said = {}

    for name in ("absent", "empty", "binary"):
        with pytest.raises((OsrdyneError, SourceError)) as caught:
            READERS[who](tmp_path / name)
        said[name] = str(caught.value)

    assert f"cannot be read: No such file or directory: {tmp_path}/absent" in said["absent"]
    assert f"is empty: {tmp_path}/empty" in said["empty"]
    assert f"is not a file of UTF-8 text: '{tmp_path}/binary'" in said["binary"]
    assert "pass" not in "".join(said.values())


@pytest.mark.parametrize("found", [None, 5, b"amqp://u:hidden@h"])
@pytest.mark.parametrize("reader", [present, peers_of, engine_for])
def test_a_function_that_returns_no_text_is_refused_by_the_kind_that_it_returns(
    reader: Callable[[Callable[[], Any]], object], found: object
) -> None:
    with pytest.raises(OsrdyneError, match=f" is {type(found).__name__}, n(ot|either) text") as caught:
        reader(lambda: found)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("text", ["s3cret", "\ufeffs3cret\r\n", "\n s3cret \nand a remark\n"])
def test_the_first_line_of_a_file_is_the_secret_and_is_read_again_each_time(text: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    read = from_file(file)

    assert read() == "s3cret"

    file.write_text("changed")
    assert read() == "changed"


def test_a_file_is_nearer_than_the_environment_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("of the file")
    monkeypatch.setenv("V", " of the variable\n")

    assert secrets.from_environment("V", tmp_path / "secret", "name", "--file") == "of the file"
    assert secrets.from_environment("V", None, "name", "--file") == "of the variable"


@pytest.mark.parametrize("value", ["", " \n"])
def test_a_secret_that_is_given_and_empty_is_not_one_that_is_missing(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("V", value)

    with pytest.raises(SettingsError, match=r"^name: is empty$"):
        secrets.from_environment("V", None, "name", "--file")

    monkeypatch.delenv("V")
    with pytest.raises(SettingsError, match=r"^name: is missing; name a file that holds it by --file, or set V$"):
        secrets.from_environment("V", None, "name", "--file")


@pytest.mark.parametrize(
    "given",
    [
        lambda: secrets.given("value", "file", "token"),
        lambda: RedisSettings(url="redis://h", url_file=Path("file")),
        lambda: Nodes("http://h", token="0123456789abcdef", token_file=Path("file")),
        lambda: broker_address.chosen(
            SimpleNamespace(get_parameter_source=lambda _: SimpleNamespace(name="COMMANDLINE")),
            "amqp://h",
            Path("file"),
            variable="V",
        ),
    ],
)
def test_a_secret_that_is_given_itself_and_as_a_file_is_refused(given: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="is given twice, itself and as a file; give one"):
        given()


def test_an_engine_of_jobs_reports_its_file_by_the_variable_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSRDYNE_JOBS_DATABASE_FILE", str(tmp_path / "absent"))

    with pytest.raises(OsrdyneError, match=r"^OSRDYNE_JOBS_DATABASE_FILE: cannot be read: No such file"):
        engine_from_environment()
