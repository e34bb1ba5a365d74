"""The files of `plugins/`, which belong to no package: Ansible finds them by their folder."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed import ROOT

PLUGINS = ROOT / "plugins"


def plugin(file: str) -> ModuleType:
    """Import a file of `plugins/`, such as `filter/osrdyne.py`."""
    spec = importlib.util.spec_from_file_location(f"plugins_{Path(file).stem}", PLUGINS / file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_module(name: str, arguments: dict[str, Any], secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """Call an Ansible module as Ansible does, in a process of its own; return its result.

    An AssertionError is raised where its output shows one of the secrets.
    """
    done = subprocess.run(
        [sys.executable, str(PLUGINS / f"modules/{name}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        check=False,
        capture_output=True,
        text=True,
    )
    assert not [secret for secret in secrets if secret in done.stdout + done.stderr]
    result: dict[str, Any] = json.loads(done.stdout)
    return result
