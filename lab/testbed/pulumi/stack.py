"""A project of Pulumi in a directory of a test's own, run by the real command.

The program is that of this checkout, or of another one that a test names; configuration and state are the test's.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import ROOT
from testbed.pulumi.building import programs, released

#: Seconds for one command on a busy machine.
PATIENCE_SECONDS = 480


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, and all that it said."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Project:
    """`Pulumi.yaml`, the stacks' files and the program, with state below the same directory."""

    directory: Path
    passphrase: str = field(repr=False)
    #: The stack on which commands work.
    stack: str = "dev"
    #: The secrets of its configuration.
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    #: The folder of the Python that runs the program.
    python: Path = Path(sys.executable).parent

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / "infra/stacks", self.stacks)
        self.take(ROOT, self.python)
        (self.directory / "state").mkdir()
        (self.directory / "home").mkdir()

    def take(self, tree: Path, python: Path) -> None:
        """Use the program of a checkout from now on, run by its own Python. Configuration and state stay."""
        self.python = python
        shutil.copy(tree / "Pulumi.yaml", self.directory)
        for former in (part for part in self.stacks.parent.iterdir() if part.is_symlink()):
            former.unlink()
        for part in (tree / "infra").iterdir():
            if part.name != self.stacks.name:
                (self.stacks.parent / part.name).symlink_to(part)

    @property
    def stacks(self) -> Path:
        """The folder of the stacks' files."""
        return self.directory / "infra/stacks"

    def environment(self) -> dict[str, str]:
        """Variables under which `pulumi` works on this project; of the tests' own environment they have PATH alone."""
        path = [*map(str, programs()), str(self.python), os.environ["PATH"]]
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.directory / "home"),
            "PULUMI_HOME": str(self.directory / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.directory}/state?metadata=skip",
            "PULUMI_CONFIG_PASSPHRASE": self.passphrase,
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            # The same as `enable_patch_force` of newer providers.
            **({} if released() else {"PULUMI_K8S_ENABLE_PATCH_FORCE": "true"}),
        }

    def pulumi(self, *words: str, stdin: str = "", variables: Mapping[str, str] | None = None) -> CommandResult:
        """Run `pulumi WORDS` in the project."""
        started = time.monotonic()
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive", "--color", "never"],
            check=False,
            cwd=self.directory,
            env={**self.environment(), **(variables or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr, time.monotonic() - started)

    def configure(self, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Give the stack these values, in place of those of the checkout's file, and make it."""
        lines = "".join(f"  osrdyne:{name}: {json.dumps(value)}\n" for name, value in values.items())
        file = self.stacks / f"Pulumi.{self.stack}.yaml"
        kept = [line for line in file.read_text().splitlines() if line.startswith("encryptionsalt:")]
        file.write_text("\n".join([*kept, "config:", lines]))
        if not kept:
            self.must("stack", "init", self.stack)
        self.secrets = dict(secrets)
        for name, value in secrets.items():
            self.must("config", "set", "--stack", self.stack, "--secret", name, stdin=value)

    def must(self, *words: str, stdin: str = "", variables: Mapping[str, str] | None = None) -> CommandResult:
        """Run a command that has to succeed. Raises AssertionError with what it said."""
        done = self.pulumi(*words, stdin=stdin, variables=variables)
        assert done.code == 0, f"pulumi {' '.join(words)}:\n{done.text}"
        return done

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secrets in the clear."""
        found: dict[str, Any] = json.loads(
            self.must("stack", "output", "--stack", self.stack, "--json", "--show-secrets").out
        )
        return found

    def exposed(self) -> list[str]:
        """Return which secrets the exported state has in the clear: settings, and passwords that the stack made.

        Raises AssertionError where the export with all secrets shown lacks one: then this could find nothing.
        """
        export = ("stack", "export", "--stack", self.stack)
        hidden, clear = (self.must(*export, *more).out for more in ((), ("--show-secrets",)))
        known = dict(self.secrets)
        for made in json.loads(clear)["deployment"]["resources"]:
            if made["type"].endswith(":Password"):
                known[made["urn"]] = json.loads(made["outputs"]["password"]["plaintext"])
        assert [name for name, secret in known.items() if not _holds(clear, secret)] == []
        return sorted(name for name, secret in known.items() if _holds(hidden, secret))

    def state(self) -> dict[str, Any]:
        """The deployment of the stack as it is stored."""
        files = list((self.directory / "state/.pulumi/stacks").rglob(f"{self.stack}.json"))
        assert len(files) == 1, files
        deployment: dict[str, Any] = json.loads(files[0].read_text())["checkpoint"]["latest"]
        return deployment


def _holds(exported: str, secret: str) -> bool:
    """Return whether an exported state has a secret: as it is, in base64 as in a Secret, or as JSON within JSON."""
    # `pulumi config set` removes a line break at the end.
    text = secret.rstrip("\n")
    once = json.dumps(text)[1:-1]
    forms = (once, json.dumps(once)[1:-1], base64.b64encode(text.encode()).decode())
    return any(form in exported for form in forms)
