"""A place that cannot be used as a lake is refused before anything is written, with what to do."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from osrdyne_pipeline import places
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.store import refusals
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_runtime.console.imports import NotInstalled
from testbed.s3.server import BUCKET, S3Server
from tests.pipeline.small_history import write
from tests.pipeline.store.careless import careless


@pytest.mark.parametrize(
    "place, said",
    [
        ("gs://bucket/lake", "begins with gs: as an address does"),
        ("abfs://container@account/lake", "begins with abfs: as an address does"),
        ("file:///lake", "give the path alone"),
        ("s3://", "does not name a bucket: give s3://BUCKET/PREFIX"),
        ("s3a:///lake", "does not name a bucket: give s3://BUCKET/PREFIX"),
        ("s3://b", "does not name a bucket"),
    ],
)
def test_an_address_of_another_kind_is_refused_as_a_lake(place: str, said: str) -> None:
    with pytest.raises(LakeError, match=said):
        lake_at(place, "core")
    assert said in (places.lake_problem(place) or "")


@pytest.mark.parametrize(
    "place, named",
    [
        ("s3://bucket/a/lake", ("bucket", "a/lake")),
        ("S3A://bucket", ("bucket", "")),
        ("s3a:/bucket/lake/", ("bucket", "lake")),
        ("s3", None),
        ("folder/s3://bucket", None),
    ],
)
def test_an_address_of_a_store_names_bucket_and_prefix(place: str, named: tuple[str, str] | None) -> None:
    assert places.store(place) == named
    assert places.store(Path(place)) == named
    assert places.lake_problem(place) is None


def test_without_the_extra_an_address_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import_as_it_is = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "osrdyne_pipeline" and "store.lake" in name:
            raise ModuleNotFoundError("No module named 'deltalake'", name="deltalake")
        return import_as_it_is(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotInstalled, match=r"deltalake is not installed; install osrdyne-pipeline\[s3\]"):
        lake_at("s3://bucket/lake", "core")


def test_an_error_without_a_known_meaning_is_one_short_line() -> None:
    said = refusals.meaning(OSError(f"Generic\n  \x1b[31m↳\x1b[0m <Code>Odd</Code> {'x' * 999}"))

    assert said.startswith("Odd: Generic <Code>Odd</Code> xxx")
    assert ("\n" in said, len(said) < 400) == (False, True)


@pytest.mark.full
@pytest.mark.parametrize(
    "bucket, variables, said",
    [
        ("absent", {}, "there is no such bucket: make it, or give another address"),
        (BUCKET, {"AWS_SECRET_ACCESS_KEY": "wrong"}, "its credentials are not accepted: check AWS_ACCESS_KEY_ID"),
        (BUCKET, {"AWS_ACCESS_KEY_ID": "wrong"}, "its credentials are not accepted: check AWS_ACCESS_KEY_ID"),
        (BUCKET, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:1 cannot be reached"),
    ],
    ids=["no bucket", "wrong secret", "wrong key", "no server"],
)
def test_a_store_that_cannot_be_used_is_refused_in_one_line_and_nothing_is_written(
    bucket: str, variables: dict[str, str], said: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = tmp_path / "events.jsonl", sorted(s3.folder.rglob("*.parquet"))
    write(file)
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    for words in (["ingest", str(file)], ["tables"], ["recommend"], ["report"], ["forget", "--event-id", "a"]):
        done = CliRunner().invoke(PIPELINE, [*words, "--pool", "core", "--lake", f"s3a://{bucket}/refused"])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert done.stderr.startswith(f"osrdyne: s3://{bucket}/refused/core cannot be used: {said}")

    assert (sorted(tmp_path.iterdir()), sorted(s3.folder.rglob("*.parquet"))) == ([file], before)


@pytest.mark.full
def test_a_store_that_may_only_be_read_is_refused_to_those_who_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    write(file)
    with S3Server(read_only=True) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_file.read_text().strip())
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key_file.read_text().strip())
        lake = ["--pool", "core", "--lake", f"s3://{BUCKET}"]
        done = CliRunner().invoke(PIPELINE, ["ingest", str(file), *lake])
        read = CliRunner().invoke(PIPELINE, ["tables", *lake])

    assert (done.exit_code, "they need to list, read, write and delete there" in done.stderr) == (2, True), done.stderr
    assert "osrdyne pipeline ingest brings them" in read.stderr


@pytest.mark.full
@pytest.mark.parametrize("ignored", [["If-None-Match"], ["If-Match"], ["If-None-Match", "If-Match"]], ids=" ".join)
def test_a_store_that_ignores_conditions_of_a_write_is_refused(
    ignored: list[str], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    write(file)
    place = f"s3://{BUCKET}/careless"
    with careless(s3, ignored) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        done = CliRunner().invoke(PIPELINE, ["ingest", str(file), "--pool", "core", "--lake", place])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    said = f"osrdyne: {place}/core cannot be used: the server ignores {' and '.join(ignored)}, so that"
    assert done.stderr.startswith(said)
    # Nothing of it is left
    assert not [path for path in s3.bucket.rglob("*") if "careless" in path.parts and path.is_file()]


@pytest.mark.full
def test_the_same_store_with_nothing_that_it_ignores_is_taken(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    write(file)
    with careless(s3, []) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        done = CliRunner().invoke(PIPELINE, ["ingest", str(file), "--pool", "core", "--lake", f"s3://{BUCKET}/careful"])
    assert done.exit_code == 0, done.output
