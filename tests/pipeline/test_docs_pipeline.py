"""Every command that docs/howto/pipeline.md shows does what the page says: those for one machine here, on the stream of
a real broker; those for a cluster in test_standalone_cluster.py.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.main import get_command
from typer.testing import CliRunner

import steps
from osrdyne_pipeline.commands import PIPELINE
from tests.pipeline.small_history import EVENTS

PAGE = Path(steps.ROOT, "docs/howto/pipeline.md").read_text()
#: Modules of the report that have its sections.
SECTIONS = ("sections", "promised", "recommended", "causes")


def lines() -> list[str]:
    """The commands of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in found) if line]


@pytest.mark.full
def test_the_commands_of_the_page_work_one_after_the_other(
    uri_file: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stacks = tmp_path / "infra/stacks"
    stacks.mkdir(parents=True)
    (stacks / "Pulumi.prod.yaml").write_text("config:\n  osrdyne:pools:\n    - name: core\n")
    replaced = {"/etc/osrdyne/core/monitor.uri": str(uri_file), "/var/lib/osrdyne/lake": str(tmp_path / "lake")}
    variables: dict[str, str | None] = {name: None for name in os.environ if name.startswith("OSRDYNE_")}
    said: dict[str, str] = {}
    for line in lines():
        for shown, here in replaced.items():
            line = line.replace(shown, here)
        program, *words = shlex.split(line)
        if program == "export":
            variables.update({name: value for name, _, value in (word.partition("=") for word in words)})
            continue
        assert (program, words.pop(0)) == ("osrdyne", "pipeline")
        done = CliRunner().invoke(PIPELINE, words, env=variables, catch_exceptions=False)
        assert done.exit_code == 0, f"{line}: {done.output}"
        said[words[0]] = done.stdout

    assert list(said) == ["ingest", "tables", "recommend", "report", "forget", "bill"]
    assert "there is nothing to forget" in said["forget"]
    assert f"{EVENTS} new events of core" in said["ingest"]
    assert "no recommendation" in said["recommend"]
    page = Path("report.html").read_text()
    assert "Nothing is recommended" in page
    assert "whole days of history" in page


def test_the_page_explains_every_command_and_every_common_option() -> None:
    group: Any = get_command(PIPELINE)
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    common = set.intersection(*({opt for option in made.params for opt in option.opts} for made in commands.values()))

    assert set(re.findall(r"^\| `osrdyne pipeline ([a-z]+)`", PAGE, re.MULTILINE)) == set(commands)
    here = PAGE.split("## On your machine\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(--[a-z]+)`", here, re.MULTILINE)) == common


def test_the_page_names_every_section_of_the_report() -> None:
    sources = "".join(
        Path(steps.ROOT, f"packages/pipeline/osrdyne_pipeline/report/{name}.py").read_text() for name in SECTIONS
    )
    report = PAGE.split("## The report\n")[1].split("\n## ")[0]

    assert set(re.findall(r"^\| ([A-Z][^|]+?) \|", report, re.MULTILINE)) == set(
        re.findall(r'title.*? = "(.+?)"', sources)
    )
