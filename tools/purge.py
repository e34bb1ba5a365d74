"""`make purge`: remove what the other targets made on this machine; without CONFIRM=yes, only show it.

`make up` records what it makes and was not there before (playbooks/dev.yml), and what installs packages records those
(plugins/modules/osrdyne_packages.py). Only what is recorded, the cache and what is in the checkout is removed. The
packages are listed, with the command that removes them. What has gone already is left out, so it may be repeated.

Standard library only: it also removes `.venv`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steps
import superuser
import system_packages

#: Where playbooks/dev.yml records what it makes, a file for each pool.
RECORDS = Path("/var/lib/osrdyne/made")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne"
#: Caches of the tools that were used, and of other projects, with the commands that empty them.
SHARED = {
    "uv": "uv cache clean",
    "pip": "pip cache purge",
    "go-build": "go clean -cache",
    "../go/pkg/mod": "go clean -modcache",
}
BROKER_PACKAGE = "rabbitmq-server"
#: Name of the container and of its volume: roles/rabbitmq/defaults/main.yml.
CONTAINER = "osrdyne-rabbitmq"


@dataclass(frozen=True)
class Step:
    """Something to remove: what it is, where, and by which command."""

    what: str
    command: tuple[str, ...]
    path: Path | None = None
    root: bool = True


def remove(path: Path, what: str = "") -> list[Step]:
    """Remove a file or folder; nothing where there is none. What is mounted below it stays."""
    command = ("rm", "-rf", "--one-file-system", str(path))
    return [Step(what or str(path), command, path)] if os.path.lexists(path) else []


def of_record(file: Path, record: dict[str, Any]) -> list[Step]:
    """Remove a pool that `make up` brought; its record goes last, so that a purge that was cut short is repeated."""
    made = record["osrdyne_made"]
    play = (str(steps.BIN / "python"), str(steps.ROOT / "tools/play.py"), "down", "-e", f"@{file}")
    found = [Step(f"pool {file.stem}: stopped by `make down`", play, root=False)]
    source = source_of_broker(record)
    if source.get("source") == "container":
        engine = source["engine"]
        found.append(Step(f"container {CONTAINER}", (engine, "rm", "--force", CONTAINER)))
        found.append(
            Step(f"volume {CONTAINER}, with the broker's data", (engine, "volume", "rm", "--force", CONTAINER))
        )
    for path in made["paths"]:
        found += remove(Path(path))
    if any(path.endswith(".service") for path in made["paths"]) and Path("/run/systemd/system").exists():
        found.append(Step("systemd reads its units again", ("systemctl", "daemon-reload")))
    there = [name for name in made["accounts"] if has_account(name)]
    found += [Step(f"account {name}", ("userdel", name)) for name in there]
    return [*found, *remove(file, f"the record {file}")]


def stays(record: dict[str, Any], packages: list[str]) -> list[str]:
    """What of a pool stays, and is to be removed by hand."""
    vhost, broker = record["osrdyne_vhost"], record["osrdyne_named_broker"]
    if broker:
        return [f"on your broker {broker} the virtual host {vhost} and the users of the pool; delete them there"]
    if source_of_broker(record).get("source") != "package":
        return []
    if BROKER_PACKAGE in packages:
        return [f"the data of the broker; it goes with the package {BROKER_PACKAGE}, which `make down` has stopped"]
    ours = (
        f"the virtual host {vhost}, the users of the pool and osrdyne-admin; in /etc/rabbitmq conf.d/10-osrdyne.conf, "
        "osrdyne.inetrc, advanced.config, enabled_plugins and the block `osrdyne` of rabbitmq-env.conf, which keeps it "
        "on loopback. Its user guest was removed if the password was guest"
    )
    start = f"`systemctl enable --now {BROKER_PACKAGE}`"
    return [f"in the RabbitMQ that was here before, {ours}; `make down` stops it, and {start} starts it again"]


def source_of_broker(record: dict[str, Any]) -> dict[str, str]:
    """Where roles/rabbitmq took the broker from."""
    file = Path(record["osrdyne_broker_directory"], "source.json")
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found


def has_account(name: str) -> bool:
    return not subprocess.run(["getent", "passwd", name], check=False, capture_output=True).returncode


def plan(records: dict[Path, dict[str, Any]], packages: list[str]) -> list[Step]:
    """All that is removed, in order: the pools, the caches, and last what is in the checkout."""
    found = [step for file, record in records.items() for step in of_record(file, record)]
    found += remove(CACHE, f"{CACHE}, what tests and demos are made of")
    if not packages:
        found += remove(system_packages.module().STATE)
    if steps.VENV.exists():
        clean = ("make", "--no-print-directory", "clean")
        found.append(
            Step(f"{steps.VENV} and what tools left in the checkout, by `make clean`", clean, steps.VENV, False)
        )
    return found


def size(path: Path) -> str:
    """How much disk it takes, with a + where not all of it may be read."""
    sudo = [] if superuser.is_root() else ["sudo", "-n"]
    for prefix in (sudo, []) if sudo else ([],):
        try:
            done = subprocess.run([*prefix, "du", "-sxh", str(path)], check=False, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.stdout:
            return done.stdout.split()[0] + ("+" if done.returncode else "")
    return "?"


def show(todo: list[Step], kept: list[str], packages: list[str]) -> None:
    """Print what is removed and what stays."""
    for step in todo:
        print(f"  {size(step.path) if step.path else '':>7}  {step.what}")
    for line in kept:
        print(f"purge: this stays: {line}")
    for name, command in SHARED.items():
        path = CACHE.parent / name
        if path.exists():
            print(
                f"purge: this stays, as other programs use it: {path.resolve()}, {size(path)}; `{command}` empties it"
            )
    if packages:
        print(
            "purge: these packages were installed for osrdyne and stay; this removes them, and shows before what goes:"
        )
        print(f"  {'' if superuser.is_root() else 'sudo '}apt-get purge --auto-remove {' '.join(packages)}")


def carry_out(todo: list[Step]) -> None:
    """Remove all of it. Ends the script where something cannot be removed; a further call goes on there."""
    rights = superuser.prefix("removing what root owns") if any(step.root for step in todo) else []
    if any("tools/play.py" in word for step in todo for word in step.command):
        subprocess.run([sys.executable, str(steps.ROOT / "tools/setup.py")], check=True)
    for step in todo:
        print(f"purge: {step.what}", flush=True)
        done = subprocess.run([*(rights if step.root else []), *step.command], cwd=steps.ROOT, check=False)
        if done.returncode:
            steps.stop(f"{step.what}: `{' '.join(step.command)}` failed; the rest is still here. Mend that, and repeat")
    # Folders of ours that are empty now: made, osrdyne.
    above = (folder for step in todo if step.path for folder in step.path.parents)
    empty = sorted({str(folder) for folder in above if folder.name in (RECORDS.name, "osrdyne")}, reverse=True)
    for folder in filter(os.path.isdir, empty):
        subprocess.run([*rights, "rmdir", "--ignore-fail-on-non-empty", folder], check=False)


def main() -> None:
    """Show what would be removed, and with `--confirm=yes` remove it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--confirm", default="")
    confirmed = parser.parse_args().confirm == "yes"
    records = {file: json.loads(file.read_text()) for file in sorted(RECORDS.glob("*.json"))}
    packages: list[str] = system_packages.module().recorded()
    todo = plan(records, packages)
    if todo:
        print("purge: this is removed:" if confirmed else "purge: CONFIRM=yes removes this:")
    else:
        print("purge: there is nothing to remove")
    show(todo, [line for record in records.values() for line in stays(record, packages)], packages)
    if confirmed and todo:
        carry_out(todo)
        print("purge: done")
    elif todo:
        print("purge: nothing has been removed yet; `make purge CONFIRM=yes` does it")


if __name__ == "__main__":
    main()
