"""Programs of the release before take the settings of a stack that uses nothing newer, so that it can go back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.infra import declaring
from tests.infra.declaring import JOBS, RELAY, settings
from tests.release.two_versions import Version

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("declared"), pytest.mark.timeout(1200)]

#: Reads each file as the program that has it mounted.
READ = """
import sys
from pathlib import Path
from osrdyne.settings import daemon
from osrdyne_pool import settings_file
from osrdyne_relay.settings import RelaySettings
daemon.load(Path("core-settings/settings.toml"))
daemon.load(Path("other-settings/settings.toml"))
settings_file.read_pool(Path("core-redo/settings.toml"))
RelaySettings.from_mapping(settings_file.read(Path("relay/relay.toml"))["relay"])
"""


def test_the_programs_of_the_release_before_take_the_settings_of_a_stack(before: Version, tmp_path: Path) -> None:
    kept = {"unbind_delay": 60, "overrides": {"a.b=1": {"unbind_delay": 5}}, **JOBS["pools"][0]}
    found = declaring.pools(settings(**{**RELAY, **JOBS, "pools": [kept, {"name": "other"}]}))
    for (kind, name), made in found.objects.items():
        if kind == "ConfigMap":
            (tmp_path / name).mkdir()
            for file, text in made["data"].items():
                (tmp_path / name / file).write_text(text)

    done = subprocess.run([before.python, "-c", READ], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
