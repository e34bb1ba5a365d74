"""Environment files: what is written is what a later daemon reads. How systemd reads them is tested on a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from osrdyne.drivers.systemd import environment
from osrdyne.drivers.systemd.environment import EnvironmentFiles, UnitRecord
from osrdyne.drivers.systemd.groups import Groups
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError
from tests.hard_keys import KEYS

HARD = [*KEYS, 'say "hi"', "back\\slash", "$HOME `id`", "\r\n", "\u2028", "#;", "'"]


def record(key: str = "LAX", *, pool: str = "core", instance: str = "one", worker: str = "w-1") -> UnitRecord:
    return UnitRecord(key, pool, instance, worker, "hash")


def files(directory: Path) -> EnvironmentFiles:
    return EnvironmentFiles(directory / "env", "core", "one")


def test_values_are_quoted_and_what_means_something_within_quotes_is_escaped() -> None:
    text = environment.render(record(), {"A": "x\"$`\\ ' %\n\r", "B": ""})
    assert text.split("\n", 1)[1] == 'A="x\\"\\$\\`\\\\ \' %\n\r"\nB=""\n'


@pytest.mark.parametrize("key", HARD)
def test_a_record_is_read_as_it_was_written(key: str, tmp_path: Path) -> None:
    files(tmp_path).write(record(key), {"WORKER_KEY": key})
    assert files(tmp_path).read_all() == {record(key).name: record(key)}


@pytest.mark.parametrize("key", HARD)
def test_the_first_line_is_a_comment_and_has_no_line_break(key: str) -> None:
    head, rest = environment.render(record(key), {"A": "1"}).split("\n", 1)
    assert head.startswith("# ")
    assert not set(head) & set("\r\n")
    assert rest == 'A="1"\n'


def test_files_of_other_pools_of_other_instances_and_unknown_files_are_passed_over(tmp_path: Path) -> None:
    ours = files(tmp_path)
    ours.write(record("LAX"), {})
    EnvironmentFiles(tmp_path / "env", "other", "one").write(record("LAX", pool="other"), {})
    EnvironmentFiles(tmp_path / "env", "core", "two").write(record("LAX", instance="two"), {})
    for name, content in {"a": b"", "b": b"\xff", "c": b"# osrdyne []\n", "d": b"# osrdyne {}\n"}.items():
        (tmp_path / f"env/{name}.env").write_bytes(content)
    assert ours.read_all().keys() == {record("LAX").name}


def test_a_file_under_another_groups_name_is_passed_over(tmp_path: Path) -> None:
    ours = files(tmp_path)
    ours.write(record("LAX"), {})
    (tmp_path / f"env/{record('LAX').name}.env").rename(tmp_path / f"env/{record('SFO').name}.env")
    assert ours.read_all() == {}


def test_the_file_of_a_group_that_an_earlier_version_named_otherwise_can_be_removed(tmp_path: Path) -> None:
    ours = files(tmp_path)
    ours.write(record("LAX"), {})
    (tmp_path / f"env/{record('LAX').name}.env").rename(tmp_path / "env/earlier.env")
    assert (ours.read_all(), ours.other_names) == ({}, {"earlier"})
    ours.remove_other("earlier")
    assert (list((tmp_path / "env").iterdir()), ours.other_names) == ([], set())


def test_a_file_that_was_another_groups_and_is_written_again_belongs_to_no_earlier_version(tmp_path: Path) -> None:
    ours = files(tmp_path)
    ours.write(record("LAX"), {})
    (tmp_path / f"env/{record('LAX').name}.env").rename(tmp_path / f"env/{record('SFO').name}.env")
    assert (ours.read_all(), ours.other_names) == ({}, {record("SFO").name})
    ours.write(record("SFO"), {})
    assert ours.read_all() == {record("SFO").name: record("SFO")}
    assert not ours.other_names


def test_a_file_is_for_its_owner_alone_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        files(tmp_path).write(record(), {})
    finally:
        os.umask(mask)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "env").iterdir()] == [0o600]
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o700


def test_the_file_of_a_later_start_is_not_removed_with_a_former(tmp_path: Path) -> None:
    ours = files(tmp_path)
    ours.write(record(worker="w-1"), {})
    ours.write(record(worker="w-2"), {})
    ours.remove(record(worker="w-1"))
    assert ours.read(record().name) == record(worker="w-2")
    ours.remove(record(worker="w-2"))
    assert ours.read(record().name) is None


def test_a_write_that_fails_leaves_the_former_file(tmp_path: Path) -> None:
    ours = files(tmp_path)
    ours.write(record(worker="w-1"), {"A": "1"})
    (tmp_path / f"env/{record().name}.tmp").mkdir()
    with pytest.raises(DriverError, match="cannot write"):
        ours.write(record(worker="w-2"), {"A": "2"})
    assert ours.read(record().name) == record(worker="w-1")


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("")
    with pytest.raises(DriverError, match="create it or name another"):
        files(tmp_path)


def test_a_credential_that_cannot_be_had_is_reported_and_strikes_out_everything(tmp_path: Path) -> None:
    def away() -> str:
        raise SettingsError("driver.worker_amqp_uri_file", "is empty: /x")

    groups = Groups(PoolSettings("core"), tmp_path / "env", away, None)
    with pytest.raises(DriverError, match="worker_amqp_uri_file: is empty"):
        groups.begin("LAX", "hash")
    assert groups.shown(["anything"]) == ()


def test_a_password_is_struck_out_in_both_spellings(tmp_path: Path) -> None:
    groups = Groups(PoolSettings("core"), tmp_path / "env", lambda: "amqp://u:p%40ss@h/v", None)
    assert groups.shown(["u:p%40ss and p@ss", " ", "p@ss"]) == ("u:*** and ***", "***")


def test_every_start_has_a_worker_id_of_its_own(tmp_path: Path) -> None:
    groups = Groups(PoolSettings("core"), tmp_path / "env", lambda: "amqp://h", None)
    assert groups.begin("LAX", "hash").worker_id != groups.begin("LAX", "hash").worker_id
