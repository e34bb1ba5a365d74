"""`osrdyne new`: a folder with a worker, its test, a client and the settings of a pool of processes.

The files of `new_pool` are those of a pool `core`, and are written for the pool that is asked for.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from osrdyne.commands.pool import place
from osrdyne_protocol.names import check_pool_name
from osrdyne_runtime.console.output import CannotAsk, one_line_errors, print_json

_FILES = ("worker.py", "test_worker.py", "client.py", "settings.toml")
#: What a RabbitMQ that was just installed on this machine lets in.
_NEW_BROKER = "amqp://guest:guest@localhost:5672/%2F"
_IGNORED = "broker.uri\nmanagement.uri\nstate/\n"


@one_line_errors
def command(
    name: Annotated[str, typer.Argument(help="Name of the pool, and of the folder that is made.")],
    json: Annotated[bool, typer.Option("--json", help="Print the names of the files as one JSON document.")] = False,
) -> None:
    """Write worker, test, client and settings of a pool into a new folder.

    OSRDYNE_BROKER is the address of the broker, as amqp://USER:PASSWORD@HOST:5672/VHOST. It goes into a file that only
    its owner may read. Without it, the folder has the address of a RabbitMQ that was just installed on this machine.
    """
    check_pool_name(name)
    there = place.of(os.environ.get(place.BROKER) or _NEW_BROKER)
    templates = resources.files("osrdyne.commands") / "new_pool"
    texts = {file: (templates / file).read_bytes().decode().replace('"core"', f'"{name}"') for file in _FILES}
    texts |= {".gitignore": _IGNORED, "broker.uri": f"{there.amqp}\n", "management.uri": f"{there.management}\n"}
    folder = Path(name)
    try:
        folder.mkdir()
        for file, text in texts.items():
            with open(folder / file, "x", encoding="utf-8", opener=_private if file.endswith(".uri") else None) as made:
                made.write(text)
    except FileExistsError:
        raise CannotAsk(f"{folder.absolute()} is there already; name another pool, or remove it") from None
    except OSError as error:
        raise CannotAsk(f"{folder.absolute()} cannot be written: {error.strerror}") from None
    if json:
        print_json({"folder": str(folder), "files": [*texts]})
        return
    typer.echo(f"wrote {', '.join(texts)} into {folder}")
    typer.echo(f"run its workers by `osrdyne dev {name}/worker.py`, and ask them by `python {name}/client.py`")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
