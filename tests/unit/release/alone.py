"""What a user of each package does first, where nothing else of ours is installed than what the package brings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import steps
from testbed.distributions import Environment

#: Nothing listens there.
NOWHERE = "amqp://127.0.0.1:1"


@dataclass(frozen=True)
class First:
    """A command, or the code of a page where there is none; with the end that says that all was there."""

    words: tuple[str, ...] = ()
    page: str = ""
    status: int = 0
    says: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, made: Environment) -> None:
        """Run it, and assert that it ends so."""
        words = self.words or ("python", "-c", code(self.page))
        done = made.run(*words, **self.variables)
        assert done.returncode == self.status, done
        assert re.search(self.says, done.stdout + done.stderr), done


#: What is installed -> what is done.
FIRST = {
    "osrdyne-protocol": First(page="packages/protocol/README.md", says="osrdyne-core-req-42|core"),
    "osrdyne-runtime": First(page="packages/runtime/README.md", says="the broker cannot be used"),
    "osrdyne-pool": First(page="packages/pool/README.md", says="core"),
    "osrdyne-calls": First(page="packages/calls/README.md"),
    "osrdyne-amqp": First(
        page="packages/amqp/README.md",
        status=1,
        says=r"osrdyne_amqp\.errors\.\w+: .*127\.0\.0\.1:1",
        variables={"AMQP_URI": NOWHERE},
    ),
    "osrdyne-client": First(("python", "-c", "import osrdyne_client; print(osrdyne_client.Client)"), says="Client"),
    "osrdyne-worker": First(page="packages/worker/README.md", status=1, says="MissingVariable: .*WORKER_POOL"),
    "osrdyne-command": First(page="packages/command/README.md"),
    "osrdyne": First(
        ("osrdyne", "daemon", "--settings", "none.toml"), status=2, says=r"^osrdyne: none\.toml: does not exist"
    ),
    "osrdyne-bus[command]": First(
        ("osrdyne", "bus", "ping", "--broker", NOWHERE), status=2, says=r"install osrdyne-bus\[proton\]"
    ),
    "osrdyne-jobs": First(("osrdyne", "jobs", "list"), status=2, says="OSRDYNE_JOBS_DATABASE"),
    "osrdyne-relay[node]": First(("osrdyne", "relay", "token")),
    "osrdyne-pipeline": First(
        ("osrdyne", "pipeline", "tables", "--pool", "core", "--lake", "none"), status=2, says="none"
    ),
    "osrdyne-infra": First(("python", "-c", "from osrdyne_infra import *; print(Pool, Relay, JobsDatabase)")),
}


def code(page: str) -> str:
    """Return the Python of a page."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", Path(steps.ROOT, page).read_text(), re.MULTILINE | re.DOTALL))
