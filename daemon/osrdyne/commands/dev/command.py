"""`osrdyne dev`: declares a pool, runs its daemon, restarts workers when files change, and shows what they print."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from osrdyne.commands.dev import settings as dev_settings
from osrdyne.commands.dev import sources
from osrdyne.commands.dev.output import Output, directory
from osrdyne.commands.pool import applying, place
from osrdyne.commands.pool.command import show_done, silent
from osrdyne.drivers.base import Driver, GroupState
from osrdyne.drivers.subprocess.holding import DirectoryLock
from osrdyne.drivers.subprocess.records import Records
from osrdyne.drivers.subprocess.settings import SubprocessSettings
from osrdyne.errors import DriverError
from osrdyne.settings.daemon import DaemonSettings
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import program
from osrdyne_runtime.console import log_format
from osrdyne_runtime.console.imports import uncollected
from osrdyne_runtime.console.output import CannotAsk, one_line_errors, print_json, printable, shown

if TYPE_CHECKING:
    from osrdyne.process import Process
    from osrdyne.settings.file import SettingsFile

log = logging.getLogger(__name__)

#: Seconds between two looks at files, at logs, and at workers that are to end.
_LOOK_SECONDS, _SHOW_SECONDS, _END_SECONDS = 0.5, 0.2, 0.1
#: Seconds that workers may take to end beyond their grace, after which they are killed.
_MARGIN_SECONDS = 5.0


@one_line_errors
def command(
    worker: Annotated[Path, typer.Argument(help="The worker's program.")],
    settings: Annotated[
        Path | None, typer.Option(help="The daemon's settings file. Default: settings.toml beside the worker.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Log and show as JSON, one object a line.")] = False,
) -> None:
    """Declare the pool, run its daemon and its workers, and show what they print, until Ctrl-C.

    It runs in the folder of the worker. When a Python file in that folder or the settings change, each worker finishes
    what it does and is started again; requests wait meanwhile. Ctrl-C ends the workers, too, within 10 seconds. A
    second Ctrl-C ends this command at once.
    """
    with uncollected():
        from osrdyne.process import Process  # takes a moment, which the help need not wait for
        from osrdyne.settings.file import SettingsFile

    if not worker.is_file():
        raise CannotAsk(f"{worker} is not a file; name the worker's program, or make one by `osrdyne new NAME`")
    folder, source = worker.absolute().parent, (settings or worker.with_name("settings.toml")).absolute()
    os.chdir(folder)
    log_format.configure(as_json=json, verbose=False)
    with tempfile.TemporaryDirectory(prefix="osrdyne-dev-") as private:
        written = Path(private, "settings.toml")
        state = sources.state(Path(), source)
        dev_settings.write(source, written, worker.name, state)
        file = SettingsFile(written)
        with contextlib.closing(_hold(file.settings)) as holding:
            _declare(file.settings, silent if json else show_done)
            process = Process(file)
            running = _run(process, file, holding, source, written, worker.name, state, as_json=json)
            program.run(running, "osrdyne dev")


def _hold(chosen: DaemonSettings) -> DirectoryLock:
    """Raises `DriverError` where another program uses these workers, which would end with this one."""
    driver, pool = chosen.driver, chosen.pool
    assert isinstance(driver, SubprocessSettings)  # `dev_settings.write` lets no other through
    return DirectoryLock(Records(driver.state_directory, pool.name, pool.instance).directory, alone=True)


def _declare(chosen: DaemonSettings, done: Callable[[applying.Change], None]) -> None:
    declared = applying.declared_by(chosen.pool, with_users=False)
    there = place.of_settings(chosen.broker)
    asyncio.run(applying.apply(there.api(chosen.broker.timeout), declared, there, None, done))


async def _run(
    process: Process,
    file: SettingsFile,
    holding: DirectoryLock,
    source: Path,
    written: Path,
    worker: str,
    state: str,
    *,
    as_json: bool,
) -> None:
    driver, pool = file.settings.driver, file.settings.pool
    assert isinstance(driver, SubprocessSettings)
    output = Output(directory(driver.state_directory, driver.template.log_directory, pool.name, pool.instance))
    tasks = [asyncio.create_task(_restart(source, written, worker, state)), asyncio.create_task(_show(output, as_json))]
    try:
        await process.run(at_terminal=True)
    finally:
        try:
            if holding.is_alone():
                await _end_workers(file.settings)
            else:
                log.warning("workers go on: another daemon uses them, too")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            _print(output, as_json)


async def _restart(source: Path, written: Path, worker: str, state: str) -> None:
    """Change the settings of the daemon whenever files change."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            now = await asyncio.to_thread(sources.state, Path(), source)
            if now != state:
                state = now
                dev_settings.write(source, written, worker, state)
                log.info("files have changed; workers are started again")
        except (OsrdyneError, OSError) as error:
            log.error("changed files cannot be used; going on with those before", extra={"reason": str(error)})


async def _show(output: Output, as_json: bool) -> None:
    while True:
        _print(output, as_json)
        await asyncio.sleep(_SHOW_SECONDS)


def _print(output: Output, as_json: bool) -> None:
    for key, line in output.lines():
        if as_json:
            print_json({"key": key, "output": line}, indent=None)
        else:
            typer.echo(f"{shown(key)} | {printable(line.expandtabs())}")


async def _end_workers(chosen: DaemonSettings) -> None:
    """End the workers, which go on when a daemon ends. The driver kills those that do not end in time."""
    settings = chosen.driver
    assert isinstance(settings, SubprocessSettings)
    grace = settings.template.stop_grace
    driver = settings.open(chosen.pool)
    try:
        await end_groups(driver, (dev_settings.STOP_GRACE_SECONDS if grace is None else grace) + _MARGIN_SECONDS)
    finally:
        await driver.close()


async def end_groups(driver: Driver, patience: float) -> None:
    """Stop the groups that are there now, and wait at most `patience` seconds for their end. Others are left alone."""
    left, asked, refused = {group.key for group in await driver.list()}, set[str](), dict[str, str]()
    try:
        async with asyncio.timeout(patience):
            while left:
                for key in left - asked:
                    try:
                        await driver.stop(key)
                        asked.add(key)
                    except DriverError as error:  # of this one, and it may pass
                        refused[key] = str(error)
                await asyncio.sleep(_END_SECONDS)
                there = await driver.list()
                left &= {group.key for group in there if group.state is GroupState.STOPPING or group.key not in asked}
    except TimeoutError:
        reasons = {key: refused.get(key, "it was asked to stop") for key in sorted(left)}
        log.error("workers did not end and go on", extra={"workers": reasons})
