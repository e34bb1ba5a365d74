"""Every command of `osrdyne`, those of all packages, with words that make it print something without an engine."""

from __future__ import annotations

from pathlib import Path

import typer

from osrdyne_command.program import app
from testbed import lost_output

SETTINGS = {
    "pool": {"name": "core"},
    "broker": {"amqp_uri": "amqp://u:p@127.0.0.1:1/é", "management_uri": "http://u:p@127.0.0.1:1"},
    "driver": {"kind": "noop"},
}
NO_BROKER = ("--broker", "amqp://u:p@127.0.0.1:1/v", "--json")
NO_LAKE = ("--pool", "core", "--lake", "é/none", "--json")
NO_INVENTORY = ("--pool", "core", *NO_BROKER)
#: What makes each command print something, without an engine: what it is for where that is possible, else the error
#: that the engine is away. Some wait for an engine that is away, or need none: they get a file that is not there.
#: `é` stands for the folder of the test, whose name is not ASCII.
WORDS: dict[str, tuple[str, ...]] = {
    "daemon": ("--check", "--settings", "é/settings.toml"),
    "call": ("é", "--pool", "core", *NO_BROKER),
    "status": ("--url", "URL"),
    "lint": ("--settings", "é/settings.toml"),
    "replay": ("--calls", "é/calls.csv", "--out", "é/events.jsonl"),
    "new": ("é", "--json"),
    "dev": ("é/none", "--json"),
    "pool diff": ("--settings", "é/settings.toml", "--json"),
    "pool apply": ("--settings", "é/settings.toml", "--json"),
    "pool remove": ("--settings", "é/settings.toml", "--json"),
    "poison list": NO_INVENTORY,
    "poison show": ("é", *NO_INVENTORY),
    "poison replay": ("--all", "--yes", *NO_INVENTORY),
    "poison bury": ("--all", "--yes", *NO_INVENTORY),
    "bus ping": ("é", *NO_BROKER),
    "bus watch": ("é", *NO_BROKER),
    "jobs create": ("é", "é", "{}", "--types", "no:types", "--json"),
    "jobs list": ("--database-file", "é/away", "--json"),
    "jobs show": ("1", "--database-file", "é/away", "--json"),
    "jobs redo": ("1", "--database-file", "é/away", "--json"),
    "jobs cancel": ("1", "--database-file", "é/away", "--json"),
    "jobs delete": ("1", "--database-file", "é/away", "--json"),
    "jobs schemas": ("--types", "no:é", "--json"),
    "jobs migrate": ("--database-file", "é/database", "--json"),
    "jobs restored": ("--database-file", "é/away", "--json"),
    "jobs prepare-database": (*(f"--{role}-file=é/away" for role in ("admin", "owner", "database")), "--json"),
    "jobs serve": ("--database-file", "é/none", "--json"),
    "pipeline ingest": ("é/away.jsonl", *NO_LAKE),
    "pipeline tables": NO_LAKE,
    "pipeline recommend": NO_LAKE,
    "pipeline report": NO_LAKE,
    "pipeline run": NO_LAKE,
    "pipeline bill": NO_LAKE,
    "pipeline forget": ("--source", "é/events.jsonl", *NO_LAKE),
    "relay serve": ("--settings", "é/none", "--json"),
    "relay token": ("--json",),
    "relay check": ("--settings", "é/none", "--json"),
    "relay redis": ("--password-file", "é/none", "--json"),
}
#: Those that are done there; the others end with an error, as JSON.
DONE = {"daemon", "status", "lint", "replay", "jobs migrate", "relay token"}
COMMANDS = [" ".join(leaf) for leaf in lost_output.leaves(typer.main.get_command(app))]


def words_of(command: str, folder: Path, url: str) -> list[str]:
    """The words of a command, with the test's folder and the address of a daemon."""
    return [url if word == "URL" else word.replace("é/", f"{folder}/") for word in WORDS[command]]
