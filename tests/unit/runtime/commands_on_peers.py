"""Each command that waits for a peer, how to run it there, and what it says of one that does not answer.

tests/unit/runtime/test_silent_peers.py has peers that are away or silent. Real engines that stand still, or are in an
alarm, are in the tiers of their engines.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from osrdyne_jobs.database.engines import engine_for, migrate
from osrdyne_jobs.job_types import JobType
from osrdyne_runtime.settings_text import to_toml
from testbed.command_line import CommandResult, osrdyne
from testbed.in_time import command_in_time

#: Seconds that commands are given here. PostgreSQL's library takes no less than two.
SHORT_SECONDS = 1.0
TYPES = [JobType("routes")]


@dataclass(frozen=True)
class Addresses:
    """Where the peers of commands are, with the user of each role."""

    broker: str
    management: str
    database: str
    #: Those of other roles; without, that of the daemon, whose `broker` is.
    client: str = ""
    operator: str = ""
    monitor: str = ""
    admin: str = ""
    owner: str = ""
    http: str = ""

    @classmethod
    def at(cls, port: int) -> Addresses:
        """All of them at one port of this machine."""
        place = f"user:password@127.0.0.1:{port}"
        return cls(
            f"amqp://{place}/v",
            f"http://{place}",
            f"postgresql://{place}/d?connect_timeout=2",
            admin=f"postgresql://admin:password@127.0.0.1:{port}/d?connect_timeout=2",
            owner=f"postgresql://owner:password@127.0.0.1:{port}/d?connect_timeout=2",
            http=f"http://127.0.0.1:{port}",
        )

    def of(self, peer: str) -> dict[str, str]:
        """Return the variables by which commands find this kind of peer."""
        if peer == BROKER:
            return {
                "OSRDYNE_CLIENT_URI": self.client or self.broker,
                "OSRDYNE_OPERATOR_URI": self.operator or self.broker,
                "OSRDYNE_EVENTS_URI": self.monitor or self.broker,
            }
        if peer == STORE:
            keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "password", "AWS_REGION": "us-east-1"}
            return {"AWS_ENDPOINT_URL": self.http, **keys}
        return {}


#: Kinds of peers.
BROKER, MANAGEMENT, DATABASE, STORE, DAEMON = "broker", "management", "database", "store", "daemon"


@dataclass(frozen=True)
class Waits:
    """A command on a peer. In its words, `at/` is the folder of the test with the files that name the peer."""

    words: str
    peer: str
    #: Seconds that it is given.
    seconds: float = SHORT_SECONDS
    #: What goes before `SAYS`, where the command says something of its own.
    before: str = ""
    #: 0 where the rest of what it does needs no peer.
    code: int = 2

    @property
    def says(self) -> str:
        """For what it waits, and what to do."""
        return f"{self.before}({SAYS[self.peer]})"

    def line(self, command: str, at: Path, addresses: Addresses) -> tuple[list[str], Mapping[str, str]]:
        """Return the words of its command line, and its variables."""
        words = self.words.replace("at/", f"{at}/").replace("STATUS", addresses.http).split()
        return [*command.partition(" (")[0].split(), *words], addresses.of(self.peer)


#: Where nothing listens: the port of tcpmux.
NOBODY = Addresses.at(1)


def _migrate(url: str) -> None:
    engine = engine_for(url)
    try:
        migrate(engine)
    finally:
        engine.dispose()


async def run_in_time(command: str, at: Path, addresses: Addresses, seconds: float) -> CommandResult:
    """Run a command of `WAITS` on its peer; check that it takes its seconds, one, and what it takes on no peer."""
    alone = at / "alone"
    alone.mkdir(exist_ok=True)
    write_files(alone, NOBODY)
    for folder in (at, alone):
        if "at/sqlite" in WAITS[command].words:
            await asyncio.to_thread(_migrate, (folder / "sqlite").read_text())
    words, variables = WAITS[command].line(command, at, addresses)
    without, of_nobody = WAITS[command].line(command, alone, NOBODY)
    return await command_in_time(words, variables, seconds, alone=partial(osrdyne, *without, variables=of_nobody))


#: What is said of each kind of peer: of one that is away, or of one that is silent.
SAYS = {
    BROKER: r"nothing listens there .*; is the broker running\?"
    r"|no AMQP answer within \d s; check that this is the broker's AMQP port",
    MANAGEMENT: r"no management API at .*(refused|timed out); is the broker up, with rabbitmq_management\?",
    DATABASE: r"(refused|timeout expired); is PostgreSQL running, and is this its address\?",
    STORE: r"s3://bucket\S* cannot be used: .*cannot be reached: check AWS_ENDPOINT_URL and the network",
    DAEMON: r"no daemon answers at .*; is it running",
}
INVENTORY, SETTINGS = "--pool core --timeout 1 --audit at/audit", "--settings at/settings.toml"
JOBS, REGISTER = "--database-file at/database", f"routes r {{}} --types {__name__}:TYPES"
LAKE = "--pool core --lake s3://bucket/lake"
#: By command, and the peer where it has several.
WAITS = {
    "call": Waits("42 --pool core --timeout 1", BROKER),
    "call (cast)": Waits("42 --cast --pool core --timeout 1", BROKER),
    # Its folder becomes that of the process, which another test has.
    "dev": Waits("at/worker.py --settings at/settings.toml", MANAGEMENT),
    "lint": Waits(f"{SETTINGS} --live", MANAGEMENT),
    "pool apply": Waits(SETTINGS, MANAGEMENT),
    "pool diff": Waits(SETTINGS, MANAGEMENT),
    "pool remove": Waits(SETTINGS, MANAGEMENT),
    "status": Waits("--url STATUS", DAEMON),
    "poison list": Waits("--pool core --timeout 1", BROKER),
    "poison show": Waits("1 --pool core --timeout 1", BROKER),
    "poison replay": Waits(f"--all --yes {INVENTORY}", BROKER),
    "poison bury": Waits(f"1 {INVENTORY}", BROKER),
    "jobs cancel": Waits(f"1 {JOBS}", DATABASE, seconds=2.0),
    "jobs create": Waits(f"{REGISTER} {JOBS}", DATABASE, seconds=2.0),
    "jobs create (broker)": Waits(
        f"{REGISTER} --pool core --database-file at/sqlite",
        BROKER,
        before=r"is registered; redo casts it \(.*",
        code=0,
    ),
    "jobs delete": Waits(f"1 {JOBS}", DATABASE, seconds=2.0),
    "jobs list": Waits(JOBS, DATABASE, seconds=2.0),
    "jobs migrate": Waits(JOBS, DATABASE, seconds=2.0),
    "jobs prepare-database": Waits(f"--admin-file at/admin --owner-file at/owner {JOBS}", DATABASE, seconds=2.0),
    "jobs redo": Waits(f"1 {JOBS}", DATABASE, seconds=2.0),
    "jobs restored": Waits(JOBS, DATABASE, seconds=2.0),
    "jobs show": Waits(f"1 {JOBS}", DATABASE, seconds=2.0),
    "pipeline ingest": Waits("--pool core --lake at/lake", BROKER),
    "pipeline run": Waits("--pool core --lake at/lake", BROKER),
    "pipeline run (store)": Waits(LAKE, STORE, seconds=2.0),
    "pipeline ingest (store)": Waits("s3://bucket/x --pool core --lake at/lake", STORE, seconds=2.0),
    "pipeline tables": Waits(f"{LAKE} --engine duckdb", STORE, seconds=2.0),
    "pipeline recommend": Waits(LAKE, STORE, seconds=2.0),
    "pipeline report": Waits(LAKE, STORE, seconds=2.0),
    "pipeline bill": Waits(LAKE, STORE, seconds=2.0),
    "pipeline forget": Waits(f"{LAKE} --source s3://bucket/x", STORE, seconds=2.0),
}


def write_files(folder: Path, addresses: Addresses) -> None:
    """Write the files of a pool that name its peers, as only their owner may read them."""
    tables = {
        "pool": {"name": "core"},
        "broker": {"amqp_uri": addresses.broker, "management_uri": addresses.management, "timeout": SHORT_SECONDS},
        "driver": {
            "kind": "subprocess",
            "state_directory": str(folder / "state"),
            "worker_amqp_uri": addresses.broker,
            "template": {"command": [sys.executable, "worker.py"]},
        },
    }
    texts = {
        "settings.toml": to_toml(tables),
        "worker.py": "",
        "access.toml": f'[clients.worker]\ntoken_sha256 = "{"0" * 64}"\n',
        "relay.toml": to_toml(
            {
                "relay": {
                    "redis": {"url": addresses.http.replace("http", "redis")},
                    "serve": {"port": 0, "access_file": str(folder / "access.toml"), "plain_http": True},
                }
            }
        ),
        "database": addresses.database,
        "sqlite": f"sqlite:///{folder}/jobs.sqlite",
        "owner": addresses.owner,
        "admin": addresses.admin,
    }
    for name, text in texts.items():
        file = folder / name
        file.write_text(text)
        file.chmod(0o600)
