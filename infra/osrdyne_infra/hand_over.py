"""Writes what a stack gives out into files: `python -m osrdyne_infra.hand_over DIR`, the outputs on standard input.

For each pool a folder DIR/POOL, readable by its owner only. It gets the addresses of each role (`client.uri`,
`daemon.uri`, `daemon-management.uri`, ...), named as the Ansible roles name them. A pool with jobs also has those of
their database: `jobs.address`, and `jobs-owner.address` for migrations. `settings.toml` is the daemon's settings
without a driver; what is in that file from `[driver]` on stays. Each file is replaced as a whole, so a reader sees the
old or the new one. A file under the name of an earlier release is removed. Prints the names of the files, and never an
address.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from osrdyne_protocol import foreign_json
from osrdyne_protocol.foreign_json import MOST_BYTES_OF_ENGINES
from osrdyne_runtime.console.streams import guarded
from osrdyne_runtime.settings_text import to_toml

#: Files that earlier releases wrote, by the names that replaced theirs.
FORMER_NAMES = {"daemon-management": "daemon_management.uri"}


def main() -> None:
    """Read the outputs from standard input and write the files."""
    parser = argparse.ArgumentParser(
        prog="python -m osrdyne_infra.hand_over", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("directory", type=Path, help="where the pools' folders are made")
    directory = parser.parse_args().directory.resolve()
    try:
        outputs: dict[str, Any] = foreign_json.read(sys.stdin.read(), most=MOST_BYTES_OF_ENGINES)
        texts = files(outputs, directory)
    except (ValueError, KeyError, TypeError, AttributeError):
        sys.exit(
            "hand_over: standard input has no outputs of a stack; "
            "give it those of `pulumi stack output --json --show-secrets`, once `pulumi up` of this release succeeded"
        )
    for path, text in texts.items():
        write(path, text + own_part(path))
        sys.stdout.write(f"{path}\n")
    for path in former(texts):
        path.unlink()
        sys.stdout.write(f"{path} is removed: an earlier release wrote it, and the settings no longer name it\n")


def files(outputs: Mapping[str, Any], directory: Path) -> dict[Path, str]:
    """Return the text of each file. Raises KeyError, TypeError or AttributeError for outputs of another program."""
    found: dict[Path, str] = {}
    for pool, settings in outputs["pools"].items():
        folder, addresses = directory / pool, outputs["addresses"][pool]
        found |= {folder / f"{name}.uri": f"{address}\n" for name, address in addresses.items()}
        databases = outputs.get("databases", {}).get(pool, {})
        found |= {folder / f"{name}.address": f"{address}\n" for name, address in databases.items()}
        broker = {
            "amqp_uri_file": str(folder / "daemon.uri"),
            "management_uri_file": str(folder / "daemon-management.uri"),
            "statistics_interval": outputs["statistics_interval"],
        }
        found[folder / "settings.toml"] = to_toml({"pool": settings, "broker": broker})
    return found


def former(written: Iterable[Path]) -> list[Path]:
    """Return the files of earlier releases that lie beside those that replaced them."""
    beside = [path.with_name(FORMER_NAMES[path.stem]) for path in written if path.stem in FORMER_NAMES]
    return [path for path in beside if path.exists()]


def own_part(path: Path) -> str:
    """Return what a person has added to a settings file: the driver's table and all that follows."""
    old = path.read_text() if path.suffix == ".toml" and path.exists() else ""
    return "".join(old.partition("[driver]")[1:])


def write(path: Path, text: str) -> None:
    """Replace a file by one that only its owner may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)


if __name__ == "__main__":
    with guarded("hand_over"):
        main()
