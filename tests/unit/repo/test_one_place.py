"""What exists once in the product stays so: each is done in one module, and elsewhere only for a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps

FOLDERS = ("packages/", "daemon/", "infra/")

#: A pattern, the one module that may have it, and others with the reason.
PLACES: dict[str, tuple[str, str, dict[str, str]]] = {
    "secrets": (
        r'\.read_text\(encoding="utf-8-sig"\)',
        "packages/runtime/osrdyne_runtime/settings/secrets.py",
        {
            "daemon/osrdyne/drivers/docker/template.py": "a template",
            "daemon/osrdyne/drivers/kubernetes/template.py": "a template",
            "packages/pool/osrdyne_pool/settings_file.py": "a settings file",
        },
    ),
    "requests of the management API": (
        r"import urllib\.request",
        "packages/pool/osrdyne_pool/broker/management.py",
        {"daemon/osrdyne/commands/status.py": "the status of a daemon, in standard library"},
    ),
    "strict settings": (
        r'extra="forbid"',
        "packages/runtime/osrdyne_runtime/settings/model.py",
        {
            "packages/jobs/osrdyne_jobs/http/models.py": "the body of a request",
        },
    ),
    "pydantic's errors": (
        r"except ValidationError as error",
        "packages/runtime/osrdyne_runtime/settings/model.py",
        {
            "daemon/osrdyne/settings/daemon.py": "it asks for the one line",
            "packages/jobs/osrdyne_jobs/http/endpoints.py": "a request",
            "packages/jobs/osrdyne_jobs/job_types.py": "a payload",
            "packages/relay/osrdyne_relay/http/sockets.py": "a message of a client",
            "packages/relay/osrdyne_relay/redis/records.py": "a record of another node",
        },
    ),
}


@pytest.mark.parametrize("what", PLACES)
def test_it_is_done_in_one_module(what: str) -> None:
    pattern, place, others = PLACES[what]
    files = [name for name in steps.tracked(".py") if name.startswith(FOLDERS)]

    found = {name for name in files if re.search(pattern, Path(steps.ROOT, name).read_text())}

    assert found == {place, *others}
