"""Drivers that other packages bring: registered by an entry point, chosen by `kind`, checked like ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import steps

OUTSIDE = """
from typing import Literal
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne.drivers.noop import NoopDriver

class Nomad(NoopDriver):
    template = "a job"

class NomadSettings(DriverSettings):
    kind: Literal["nomad"]
    address: str
    def open(self, pool):
        return Nomad()

class OtherKind(NomadSettings):
    kind: Literal["docker"]

class OurKind(NomadSettings):
    kind: Literal["noop"]

class NoKind(DriverSettings):
    def open(self, pool):
        return Nomad()

no_settings = 1
"""
SETTINGS = """
[pool]
name = "core"
[broker]
amqp_uri = "amqp://user:password@nowhere"
management_uri = "http://user:password@nowhere"
[driver]
"""
OPEN = """
import sys
from pathlib import Path
from osrdyne.settings.daemon import load
try:
    found = load(Path(sys.argv[1]))
except Exception as error:
    sys.exit(f"{error}")
print(type(found.driver.open(found.pool)).__name__)
"""


def opened(
    folder: Path, driver: str, *, registered: str = "outside:NomadSettings", name: str = "nomad"
) -> subprocess.CompletedProcess[str]:
    """Open the driver of these settings, with a package `outside` installed."""
    metadata = folder / "outside-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[osrdyne.drivers]\n{name} = {registered}\n")
    (folder / "outside.py").write_text(OUTSIDE)
    (folder / "settings.toml").write_text(SETTINGS + driver)
    return subprocess.run(
        [sys.executable, "-c", OPEN, str(folder / "settings.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=steps.environment(PYTHONPATH=str(folder)),
    )


def test_a_driver_of_another_package_is_chosen_by_its_kind(tmp_path: Path) -> None:
    done = opened(tmp_path, 'kind = "nomad"\naddress = "http://nomad"\n')

    assert done.stdout == "Nomad\n", done.stderr


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        ('kind = "nomad"\n', "driver.nomad.address: is missing"),
        ('kind = "nomad"\naddress = "x"\nother = 1\n', "driver.nomad.other: is not a setting"),
        ('kind = "nomads"\n', "expected tags: 'subprocess', 'noop', 'docker', 'systemd', 'kubernetes', 'nomad'"),
    ],
)
def test_its_settings_are_checked_like_those_of_our_drivers(tmp_path: Path, driver: str, says: str) -> None:
    done = opened(tmp_path, driver)

    assert done.returncode == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("registered", "says"),
    [
        ("outside:missing", "driver: driver 'nomad' cannot be loaded from outside:missing: AttributeError"),
        ("nowhere:x", "driver: driver 'nomad' cannot be loaded from nowhere:x: ModuleNotFoundError"),
        ("outside:no_settings", "outside:no_settings must be a class derived from DriverSettings"),
        ("outside:NoKind", "outside:NoKind must have the field kind: Literal['nomad']"),
        ("outside:OtherKind", "outside:OtherKind must have the field kind: Literal['nomad']"),
    ],
)
def test_a_driver_that_cannot_be_loaded_is_an_error_where_it_is_chosen(
    tmp_path: Path, registered: str, says: str
) -> None:
    done = opened(tmp_path, 'kind = "nomad"\naddress = "x"\n', registered=registered)

    assert says in done.stderr


def test_a_driver_that_cannot_be_loaded_is_not_an_error_where_another_is_chosen(tmp_path: Path) -> None:
    done = opened(tmp_path, 'kind = "noop"\n', registered="outside:missing")

    assert done.stdout == "NoopDriver\n", done.stderr


def test_a_driver_cannot_take_the_name_of_one_of_ours(tmp_path: Path) -> None:
    done = opened(tmp_path, 'kind = "noop"\n', registered="outside:OurKind", name="noop")

    assert done.stdout == "NoopDriver\n", done.stderr
