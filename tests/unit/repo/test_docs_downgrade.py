"""The command that docs/howto/operations.md gives for the way back to an earlier release, against a daemon's status."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

import steps
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import StatusSettings
from osrdyne.state.pool import PoolState
from osrdyne.status import server as status_server
from osrdyne.status import view
from osrdyne_pool.settings import PoolSettings

SECTION = "## Back to the release before"


def command(port: int) -> str:
    """The command of the page, with the address of a daemon in place of its settings."""
    page = Path(steps.ROOT, "docs/howto/operations.md").read_text()
    found = re.search(r"```sh\n(.*?)```", page.split(SECTION)[1], re.DOTALL)
    assert found
    return found[1].replace("--settings /etc/osrdyne/core/settings.toml", f"--url http://127.0.0.1:{port}")


@pytest.mark.parametrize(("messages", "shown"), [(0, '"core-waiting": 0'), (10, ""), (None, "")])
async def test_the_command_of_the_page_says_when_the_queue_of_what_waits_is_empty(
    messages: int | None, shown: str
) -> None:
    state = PoolState.of(PoolSettings("core"), asyncio.get_running_loop().time)
    if messages is not None:
        state.counts.depths[state.names.waiting_queue] = messages
    given = view.document(state, instance="default", phase="leader", detail=None, late=5.0, owns_workers=True)
    async with status_server.serve(
        StatusSettings(port=0), Metrics(), document=lambda: given, not_ready=lambda: None
    ) as port:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        shell = await asyncio.create_subprocess_shell(command(port), stdout=asyncio.subprocess.PIPE, env=environment)
        out, _ = await shell.communicate()

    assert out.decode().strip().rstrip(",") == shown
