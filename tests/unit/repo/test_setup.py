"""`make setup`: when it has something to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import setup
import steps


def test_a_copy_of_the_collection_in_place_of_its_links_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.setattr(setup, "COLLECTION", tmp_path / "pool")
    monkeypatch.setattr(setup, "STAMP", tmp_path / "stamp")
    (tmp_path / "stamp").write_text(setup.digest())
    setup.link_collection()
    assert setup.is_up_to_date()

    # As `ansible-galaxy collection install --force` leaves it
    (tmp_path / "pool/roles").unlink()
    shutil.copytree(steps.ROOT / "roles", tmp_path / "pool/roles")
    assert not setup.is_up_to_date()

    setup.link_collection()
    assert setup.is_up_to_date()
    assert (tmp_path / "pool/roles").resolve() == steps.ROOT / "roles"
