"""Files that people write may begin with a byte order mark, as some editors write it: every reader leaves it out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from osrdyne.base import credentials
from osrdyne_pool import settings_file
from osrdyne_runtime.settings import secrets

#: Readers of what osrdyne, or the system, wrote.
OWN = {
    "daemon/osrdyne/drivers/kubernetes/api.py",
    "daemon/osrdyne/drivers/subprocess/control.py",
    "infra/osrdyne_infra/hand_over.py",
    "packages/pipeline/osrdyne_pipeline/batches.py",
    "packages/pipeline/osrdyne_pipeline/report/page.py",
}
PRODUCT = ("daemon/", "packages/", "infra/")


def test_every_file_of_others_is_read_so_that_a_byte_order_mark_is_left_out() -> None:
    files = [name for name in steps.tracked(".py") if name.startswith(PRODUCT)]
    other = re.compile(r'\.read_text\((?!encoding="utf-8-sig")')
    plain = {name for name in files if other.search(Path(steps.ROOT, name).read_text())}

    assert plain == OWN


def test_settings_and_addresses_begin_behind_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('\ufeff[pool]\nname = "core"\n')
    (tmp_path / "secret").write_text("\ufeffamqp://u:p@h/v\n")

    assert settings_file.read_pool(tmp_path / "settings.toml").name == "core"
    assert credentials.secret(None, tmp_path / "secret", "broker.amqp_uri") == "amqp://u:p@h/v"
    assert secrets.in_file(tmp_path / "secret", "redis.url_file") == "amqp://u:p@h/v"


@pytest.mark.parametrize("name", ["worker.json", "worker.toml"])
def test_a_container_is_declared_behind_a_byte_order_mark(name: str, tmp_path: Path) -> None:
    from osrdyne.drivers.docker import template

    text = '{"Image": "core:1"}' if name.endswith(".json") else 'Image = "core:1"'
    (tmp_path / name).write_text(f"\ufeff{text}")

    assert template.load(tmp_path / name)["Image"] == "core:1"
