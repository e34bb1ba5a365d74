"""Programs are built once, from exactly what is there, and a build that fails leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed import go_builds
from testbed.go_builds import BuildFailed, Recipe, built

# With a Go toolchain, which is fetched where there is none.
pytestmark = pytest.mark.full

MAIN = 'package main\n\nimport "os"\n\nfunc main() { os.WriteFile("made", []byte("WORD"), 0o644) }\n'


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A module without dependencies, and an empty cache that shares only the toolchain with the real one."""
    shared = go_builds.cache() / "kubernetes"
    shared.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache/osrdyne").mkdir(parents=True)
    (tmp_path / "cache/osrdyne/kubernetes").symlink_to(shared)
    # Else Go would compile its own library again for this test.
    monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE", str(shared.parents[1] / "go-build")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module = tmp_path / "small"
    module.mkdir()
    (module / "go.mod").write_text("module osrdyne/small\n\ngo 1.24.0\n")
    (module / "main.go").write_text(MAIN)
    return Recipe(module, {"small": "."}, commands=(("small",),))


def test_what_is_there_is_not_built_again_and_what_has_changed_is(
    recipe: Recipe, capfd: pytest.CaptureFixture[str]
) -> None:
    first = built("try", recipe)
    assert (first / "made").read_text() == "WORD"
    assert "try: building small (1 of 1 of small)" in capfd.readouterr().err

    assert built("try", recipe) == first
    assert capfd.readouterr().err == ""

    (recipe.module / "main.go").write_text(MAIN.replace("WORD", "other"))
    second = built("try", recipe)
    assert second != first
    assert (second / "made").read_text() == "other"


def test_a_build_that_fails_says_why_and_leaves_nothing(recipe: Recipe) -> None:
    (recipe.module / "main.go").write_text("package main\n\nfunc main() { nothing() }\n")

    with pytest.raises(BuildFailed, match="undefined: nothing"):
        built("try", recipe)

    left = [path.name for path in (go_builds.cache() / "try").iterdir() if not path.name.endswith(".lock")]
    assert left == []
