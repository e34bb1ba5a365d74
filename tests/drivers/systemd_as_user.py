"""Uses driver `systemd` as the daemon of a plain user does. Runs as that user on a machine of `lab/testbed/systemd.py`.

`python -m tests.drivers.systemd_as_user life MANAGER UNIT DIRECTORY` starts keys of every kind, lets another driver
adopt them, and stops them; `refusal` only tries to start a key. Both print what they saw as JSON. All packages that
this needs are plain Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from osrdyne.drivers.systemd.driver import SystemdDriver, UnitPlace
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from testbed.waiting import PATIENCE_SECONDS
from tests.hard_keys import KEYS

URI = "amqp://worker:pass-word-of-the-workers@broker.invalid/vhost"


def driver(place: UnitPlace) -> SystemdDriver:
    return SystemdDriver(PoolSettings("echo"), place, lambda: URI)


async def states(of: SystemdDriver) -> dict[str, str]:
    return {group.key: group.state.value for group in await of.list()}


async def until_all(of: SystemdDriver, state: str | None) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        wanted = {} if state is None else dict.fromkeys(KEYS, state)
        while await states(of) != wanted:  # noqa: ASYNC110 -- systemd sets no event of ours
            await asyncio.sleep(0.05)


async def life(place: UnitPlace) -> dict[str, Any]:
    """Return the error of a worker that crashed, the template's hash, and the files that were left."""
    first = driver(place)
    for key in KEYS:
        await first.start(key)
    await until_all(first, "running")
    await first.close()
    second = driver(place)
    await until_all(second, "running")
    await second.start("crash")
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in second.changes():
            if change.error is not None:
                error = change.error
                break
    for key in (*KEYS, "crash"):
        await second.stop(key)
    await until_all(second, None)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while _files(place):  # noqa: ASYNC110 -- systemd sets no event of ours
            await asyncio.sleep(0.05)
    await second.close()
    return {"error": error, "template": second.template, "left": [path.name for path in _files(place)]}


async def refusal(place: UnitPlace) -> dict[str, Any]:
    """Return why a start was refused."""
    refusing = driver(place)
    try:
        await refusing.start("a")
    except DriverError as error:
        return {"refused": str(error), "left": [path.name for path in _files(place)]}
    finally:
        await refusing.close()
    return {}


def _files(place: UnitPlace) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(place.environment_directory.iterdir())
    return []


if __name__ == "__main__":
    what, manager, unit, directory = sys.argv[1:]
    where = UnitPlace(unit, Path(directory), "user" if manager == "user" else "system")
    print(json.dumps(asyncio.run(life(where) if what == "life" else refusal(where))))
