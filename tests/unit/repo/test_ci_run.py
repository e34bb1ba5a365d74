"""The gate runs both commands, also after the first has failed, and notes the commit for which both passed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import steps

WHO = ("-c", "user.name=author", "-c", "user.email=author@example.invalid")


def own_environment() -> dict[str, str]:
    """Return the environment without what git sets in a hook: that names the repository which the hook is of."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


class Project:
    """A repository with the gate, whose two commands end as the test says."""

    def __init__(self, directory: Path, check: str, test: str) -> None:
        self.root, self.cache = directory / "project", directory / "cache"
        (self.root / ".ci").mkdir(parents=True)
        shutil.copy(steps.ROOT / ".ci/run", self.root / ".ci/run")
        (self.root / "Makefile").write_text(f"check:\n\t@{check}\n\ntest:\n\t@{test}\n")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git(*WHO, "commit", "--quiet", "--message", "all of it")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=own_environment(), check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def gate(self) -> subprocess.CompletedProcess[str]:
        env = {**own_environment(), "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.run(["sh", ".ci/run"], cwd=self.root, env=env, check=False, capture_output=True, text=True)

    def noted(self) -> list[str]:
        file = self.cache / "osrdyne/ci-passed"
        return file.read_text().split() if file.exists() else []


def test_the_commit_for_which_both_commands_passed_is_noted_last(tmp_path: Path) -> None:
    project = Project(tmp_path, "true", "true")
    (project.cache / "osrdyne").mkdir(parents=True)
    (project.cache / "osrdyne/ci-passed").write_text("an-earlier-one\n")

    done = project.gate()

    assert done.returncode == 0, done.stderr
    assert "ci: make test took " in done.stdout
    assert project.noted() == ["an-earlier-one", project.git("rev-parse", "HEAD")]


def test_a_repository_that_the_environment_names_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given tests that run within a hook of git
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other.git"))

    project = Project(tmp_path, "true", "true")

    assert project.gate().returncode == 0
    assert (project.root / ".git").is_dir()
    assert not (tmp_path / "other.git").exists()


@pytest.mark.parametrize(("check", "test", "said"), [("false", "echo tested", " check"), ("true", "false", " test")])
def test_a_command_that_fails_is_named_and_nothing_is_noted(check: str, test: str, said: str, tmp_path: Path) -> None:
    project = Project(tmp_path, check, test)

    done = project.gate()

    assert done.returncode == 1
    assert f"ci: FAILED:{said}\n" in done.stderr
    assert ("tested" in done.stdout) == (test != "false")
    assert project.noted() == []


def test_a_commit_is_not_noted_where_files_differ_from_it(tmp_path: Path) -> None:
    project = Project(tmp_path, "true", "true")
    (project.root / "Makefile").write_text("check test:\n\t@true\n")

    assert project.gate().returncode == 0
    assert project.noted() == []
