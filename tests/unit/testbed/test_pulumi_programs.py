"""The Kubernetes provider that users have is taken where Pulumi has installed it; else one is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.pulumi import building


def test_the_released_provider_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(building, "built", lambda _, recipe: Path("built", recipe.module.name))
    names = [recipe.module.name for recipe in building.RECIPES]
    assert building.programs() == [Path("built", name) for name in names]

    installed = tmp_path / ".pulumi/plugins" / f"resource-kubernetes-{building.KUBERNETES}"
    installed.mkdir(parents=True)
    assert building.released() is None
    (installed / "pulumi-resource-kubernetes").touch()

    assert building.programs() == [*(Path("built", name) for name in names if name != "kubernetes"), installed]
