"""A real RabbitMQ of a chosen version for tests, each with data, ports and node name of its own.

It runs what `roles/rabbitmq` runs on machines without a fitting package: a root file system of its own. The
broker is a child of the test process and watches its standard input, so that it ends when the test process
does, even by SIGKILL. `python -m testbed.broker up 4.3 --dir DIR` starts one that stays, for use by
hand; `down` ends it.

Both samplers of the broker are lowered to 0.5 s. Measured with that on quorum queues, 4.0.5 and 4.3.6
alike: a message that becomes unacknowledged shows in `GET /api/queues/VHOST/QUEUE` after 0.9 s (1.5 s at
most), and with `?disable_stats=true&enable_queue_totals=true` after 0.25 s (0.5 s at most); by default it
takes 5 to 7 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
from functools import cache
from pathlib import Path
from typing import Any

from testbed import ROOT
from testbed.management import Management
from testbed.ports import PortBlock
from testbed.started import StartedEngine
from testbed.suite import only_in_test_all
from testbed.waiting import PATIENCE_SECONDS, until

#: RabbitMQ version -> Debian release whose package has it.
SUITES = {"4.0": "trixie", "4.3": "forky"}
#: What `make demo` brings where a machine has no package of its own (roles/rabbitmq), and what `make test` runs on.
DEMO_VERSION = "4.0"
NEWEST = "4.3"
TOOL = ROOT / "roles/rabbitmq/files/rabbitmq-rootfs"
ADMIN = "osrdyne-admin"
#: Milliseconds; see the module's docstring.
STATISTICS_INTERVAL_MS = 500


class BrokerFailed(RuntimeError):
    """The broker did not do what it should; the text says why."""


class Broker(StartedEngine):
    """One RabbitMQ, with its data in a directory of its own. `with Broker("4.3") as broker:` starts it and
    leaves nothing behind.
    """

    def __init__(self, version: str, *, interval: int = STATISTICS_INTERVAL_MS) -> None:
        """`interval` is in milliseconds; see the module's docstring."""
        if version != DEMO_VERSION:
            only_in_test_all(f"RabbitMQ {version}")
        self.version = version
        self.directory = Path(tempfile.mkdtemp(prefix="osrdyne-broker-"))
        self._ports = PortBlock()
        self._process: subprocess.Popen[str] | None = None
        #: How often it was started.
        self.starts = 0
        self._listens_from(self._ports.first)
        try:
            configure(self.directory, version, self._ports.first, interval)
        except BaseException:
            self._ports.release()
            self.directory.rmdir()
            raise
        #: Password of the administrator `admin`, generated for this broker.
        self.admin_password = read_password(self.directory)

    admin = ADMIN

    def _listens_from(self, first: int) -> None:
        self.amqp_port, self.management_port, self.stream_port, self.prometheus_port = range(first, first + 4)

    @property
    def management_url(self) -> str:
        return f"http://127.0.0.1:{self.management_port}"

    @property
    def management(self) -> Management:
        return Management(self.management_url, self.admin, self.admin_password)

    def amqp_uri(self, user: str = ADMIN, password: str | None = None, vhost: str = "/") -> str:
        """URI for pika and our settings; without a password, that of the administrator."""
        quoted = (urllib.parse.quote(part, safe="") for part in (user, password or self.admin_password, vhost))
        name, secret, host = quoted
        return f"amqp://{name}:{secret}@127.0.0.1:{self.amqp_port}/{host}"

    def start(self) -> None:
        """Starts the broker with the data it had, and returns when it answers. Does nothing when it runs."""
        if self.is_running:
            return
        # A pipe as standard input: it closes when this process ends, however that happens.
        with (self.directory / "tool.log").open("w+") as errors:
            process = subprocess.Popen(
                tool("run", "--dir", str(self.directory), "--temporary"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            self._process = process
            self.starts += 1
            if not process.stdout.readline():
                self._reap()
                errors.seek(0)
                raise BrokerFailed(f"RabbitMQ {self.version} did not start: {errors.read()}")

    def stop(self) -> None:
        """Ends the broker in good order, as `systemctl stop` does."""
        run_tool("stop", "--dir", str(self.directory))
        self._reap()

    def kill(self) -> None:
        """Ends the broker at once, by SIGKILL. It may lose quorum queues that were declared right before.

        docs/reference/rabbitmq-lost-queues.md says which.
        """
        run_tool("kill", "--dir", str(self.directory))
        self._reap()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def rabbitmqctl(self, *arguments: str) -> str:
        """Output of `rabbitmqctl ARGUMENTS` on this broker; about a second."""
        return run_tool("ctl", "--dir", str(self.directory), "--", *arguments)

    def lost_at_starts(self, vhost: str) -> list[set[str]]:
        """For each start, the quorum queues that it did not find any more and made from scratch, as the log says.

        Seen after a SIGKILL; what such a queue held, confirmed messages included, is gone. The broker writes its log up
        to two seconds late.
        """
        path = self.directory / "log/broker.log"

        def sections() -> list[str]:
            text = path.read_text(errors="replace") if os.geteuid() == 0 else run_as_root("cat", str(path))
            return text.split("Running boot step recovery ")[1:]

        until(lambda: len(sections()) == self.starts, what="the log of the latest start")
        return [{queue for queue, of in _NOT_FOUND.findall(section) if of == vhost} for section in sections()]

    def close(self) -> None:
        """Ends the broker and removes its data."""
        if self.is_running:
            self._reap()
        else:
            run_tool("remove", "--dir", str(self.directory))
        self._ports.release()

    def _reap(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.wait(timeout=PATIENCE_SECONDS)
            self._process = None


class SharedBroker(Broker):
    """A broker that another process has started, by `share`, for all who have its file. It is not theirs to end."""

    def __init__(self, file: Path) -> None:
        """Wait until the broker answers. Raises BrokerFailed where it could not be started."""
        until(file.exists, what="the run's broker")
        facts = json.loads(file.read_text())
        if reason := facts.get("failed"):
            raise BrokerFailed(reason)
        self.version = facts["version"]
        self.directory = Path(facts["directory"])
        self._listens_from(facts["first_port"])
        self.admin_password = read_password(self.directory)

    @property
    def is_running(self) -> bool:
        return True

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """Refuse. Raises BrokerFailed."""
        raise BrokerFailed("other tests use this broker, too: a test that ends one uses `private_broker`")

    kill = stop

    def close(self) -> None:
        """Leave it to its owner."""


def share(version: str, file: Path) -> None:
    """Start a broker for all who have the file, and end it when standard input ends."""
    facts: dict[str, Any]
    try:
        with Broker(version) as broker:
            facts = {"version": version, "directory": str(broker.directory), "first_port": broker.amqp_port}
            _write(file, facts)
            sys.stdin.read()
    except Exception as error:
        # Otherwise, those who wait for the broker would wait until their patience ends.
        _write(file, {"failed": str(error) if isinstance(error, BrokerFailed) else repr(error)})
        raise


def _write(file: Path, facts: dict[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(facts))
    part.replace(file)


#: What the broker logs of a quorum queue whose data it does not find.
_NOT_FOUND = re.compile(r"configured member of queue '(.*)' in vhost '(.*)' was not found on this node")


def tool(*arguments: str) -> list[str]:
    """Command line of the tool; through sudo where this is not root."""
    return [*([] if os.geteuid() == 0 else ["sudo", "-n", "-E"]), sys.executable, str(TOOL), *arguments]


def run_tool(*arguments: str) -> str:
    # What is installed and made is said as it happens: it takes a minute.
    errors = None if arguments[0] == "install" else subprocess.PIPE
    command, pipe = tool(*arguments), subprocess.PIPE
    done = subprocess.run(command, check=False, stdout=pipe, stderr=errors, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BrokerFailed(f"rabbitmq-rootfs {' '.join(arguments)}: {done.stderr or done.stdout or 'see above'}")
    return done.stdout


#: Megabytes above which a test broker blocks publishers.
MEMORY_MB = 2500


@cache
def root_file_system(version: str) -> str:
    """Path of the root file system with this RabbitMQ; the first call on a machine builds it in about a
    minute.
    """
    made: dict[str, Any] = json.loads(run_tool("install", "--suite", SUITES[version], "--expect", version))
    return str(made["root"])


def configure(directory: Path, version: str, first_port: int, interval: int = STATISTICS_INTERVAL_MS) -> None:
    names = ("amqp", "management", "stream", "prometheus", "dist", "epmd")
    ports = [word for offset, name in enumerate(names) for word in (f"--{name}", str(first_port + offset))]
    intervals = ["--collect-statistics-interval", str(interval), "--quorum-tick-interval", str(interval)]
    # A thousand queues with a connection each stay below this; it is a bound, not what a broker takes.
    memory = ["--memory", str(MEMORY_MB)]
    run_tool("configure", "--dir", str(directory), "--root", root_file_system(version), *ports, *intervals, *memory)


def read_password(directory: Path) -> str:
    path = directory / "admin.password"
    return path.read_text() if os.geteuid() == 0 else run_as_root("cat", str(path))


def run_as_root(*command: str) -> str:
    return subprocess.run(["sudo", "-n", *command], check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testbed.broker", description="A test broker, by hand.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start a broker that stays; prints its URIs")
    shared = verbs.add_parser("share", help="start one that is described in a file, until standard input ends")
    for verb in (up, shared):
        verb.add_argument("version", choices=SUITES)
    shared.add_argument("--file", type=Path, required=True)
    down = verbs.add_parser("down", help="end it and remove its data")
    for verb in (up, down):
        verb.add_argument("--dir", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.verb == "share":
        share(arguments.version, arguments.file)
        return
    if arguments.verb == "down":
        run_tool("stop", "--dir", str(arguments.dir), "--timeout", "0")
        run_tool("remove", "--dir", str(arguments.dir))
        return
    first = PortBlock().first
    configure(arguments.dir, arguments.version, first)
    run_tool("start", "--dir", str(arguments.dir))
    password = read_password(arguments.dir)
    print(f"amqp://{ADMIN}:{password}@127.0.0.1:{first}/%2F\nhttp://{ADMIN}:{password}@127.0.0.1:{first + 1}")


if __name__ == "__main__":
    main()
