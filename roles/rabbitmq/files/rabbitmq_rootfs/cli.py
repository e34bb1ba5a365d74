"""The verbs: install, configure, start, run, stop, kill, status, ctl. Results go to standard output as
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from . import process, rootfs
from .failure import Failure
from .instance import ADMIN, HOST, Instance, configure, differs, read

#: Each of them ends `run` in good order.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    arguments = parse()
    try:
        if os.geteuid() != 0:
            raise Failure("a root file system of its own needs root: run this as root or with sudo")
        return int(VERBS[arguments.verb](arguments) or 0)
    except Failure as failure:
        print(f"rabbitmq-rootfs {arguments.verb}: {failure}", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rabbitmq-rootfs", description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    add = verbs.add_parser("install", help="make the root file system unless it is there; prints where it is")
    add.add_argument("--suite", default="trixie", help="Debian release (trixie: RabbitMQ 4.0, forky: 4.3)")
    add.add_argument("--expect", default="", help="version that RabbitMQ must start with, such as 4.3")
    add.add_argument("--cache", type=Path, default=rootfs.default_cache(), help="directory of root file systems")
    add.add_argument("--packages", default=rootfs.PACKAGES, help="what it holds, separated by commas")
    add.add_argument("--name", default="rabbitmq", help="first word of its directory's name")

    verbs.add_parser("status", help="print what the instance is and whether it runs")
    add = verbs.add_parser("ctl", help="run rabbitmqctl on the instance")
    add.add_argument("command", nargs=argparse.REMAINDER, help="rabbitmqctl's arguments")
    verbs.add_parser("kill", help="end the broker at once, as a power cut would")
    verbs.add_parser("remove", help="remove the directory of an instance that does not run")
    verbs.add_parser("stop", help="end the broker in good order")
    verbs.add_parser("start", help="start the broker in the background and wait until it answers")
    add = verbs.add_parser("run", help="run the broker until a signal comes")
    add.add_argument("--temporary", action="store_true", help="once standard input ends, kill and remove the instance")
    add = verbs.add_parser("configure", help="write the instance's files; prints whether any of them changed")
    add.add_argument("--root", required=True, help="root file system, as `install` printed it")
    add.add_argument("--user", default="root", help="account of this machine that owns data and processes")
    for name, meaning in (
        ("amqp", "AMQP"),
        ("management", "the management API"),
        ("stream", "the stream protocol"),
        ("prometheus", "metrics"),
        ("dist", "Erlang distribution"),
        ("epmd", "the broker's own epmd"),
    ):
        add.add_argument(f"--{name}", type=int, required=True, help=f"port of {meaning}")
    add.add_argument("--collect-statistics-interval", type=int, default=5000, help="milliseconds")
    add.add_argument("--quorum-tick-interval", type=int, default=5000, help="milliseconds")
    add.add_argument("--memory", type=int, default=512, help="MB above which publishers are blocked")
    add.add_argument("--log-bytes", type=int, default=10_000_000, help="size at which another log is begun")
    add.add_argument("--log-files", type=int, default=10, help="how many older logs are kept")
    for name, verb in verbs.choices.items():
        if name in ("install", "configure", "start", "stop"):
            verb.add_argument("--check", action="store_true", help="only say whether anything would change")
        if name != "install":
            verb.add_argument("--dir", type=Path, required=True, help="directory of the instance")
        if name in ("start", "run", "stop"):
            verb.add_argument("--timeout", type=float, default=60.0, help="seconds to wait")
    return parser.parse_args()


def show(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def do_install(arguments: argparse.Namespace) -> None:
    recipe = rootfs.Recipe(arguments.suite, tuple(arguments.packages.split(",")), arguments.name)
    root = recipe.path(arguments.cache)
    changed = not root.exists()
    if not arguments.check:
        changed = rootfs.install(arguments.cache, recipe, arguments.expect)
    show(root=str(root), version=rootfs.version(root), changed=changed)


def do_configure(arguments: argparse.Namespace) -> None:
    values = {name: value for name, value in vars(arguments).items() if name not in ("verb", "dir", "check")}
    directory = arguments.dir.absolute()
    if arguments.check:
        show(changed=differs(directory, Instance(**values)) or process.outdated(directory))
        return
    if not rootfs.version(Path(values["root"])):
        raise Failure(f"{values['root']} is not a root file system with RabbitMQ in it; `install` makes one")
    show(changed=configure(directory, Instance(**values)) or process.outdated(directory))


def do_start(arguments: argparse.Namespace) -> None:
    directory = arguments.dir.absolute()
    if arguments.check or process.running(directory):
        show(changed=not process.running(directory))
        return
    instance = read(directory)
    broker = process.spawn(directory, instance)
    process.remember(directory, broker.pid)
    try:
        process.wait_ready(directory, instance, broker, arguments.timeout)
    except BaseException:
        process.terminate(broker.pid, 0)
        raise
    show(changed=True)


def do_run(arguments: argparse.Namespace) -> int:
    """Stays in the foreground; prints one line of JSON once the broker answers. For systemd, and for tests.

    A temporary broker lives as long as the writing end of its standard input: it ends with its owner,
    however that ends, and takes its directory with it.
    """
    directory = arguments.dir.absolute()
    instance = read(directory)
    if process.running(directory):
        raise Failure(f"the broker of {directory} runs already")
    for number in SIGNALS:
        signal.signal(number, interrupted)
    broker = process.spawn(directory, instance)
    patience = arguments.timeout
    try:
        process.remember(directory, broker.pid)
        process.wait_ready(directory, instance, broker, arguments.timeout)
        show(pid=broker.pid)
        watched = [sys.stdin] if arguments.temporary else []
        while broker.poll() is None:
            # A broker that `kill` or `stop` ended is started again later: its owner closes the pipe too.
            if select.select(watched, [], [], 0.5)[0] and broker.poll() is None:
                patience = 0
                return 0
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        process.terminate(broker.pid, patience if broker.poll() is None else 0)
        if arguments.temporary and patience == 0:
            shutil.rmtree(directory, ignore_errors=True)


def interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def do_stop(arguments: argparse.Namespace) -> None:
    directory = arguments.dir.absolute()
    if arguments.check:
        show(changed=process.running(directory) is not None)
    else:
        end(directory, arguments.timeout)


def do_kill(arguments: argparse.Namespace) -> None:
    end(arguments.dir.absolute(), 0)


def end(directory: Path, timeout: float) -> None:
    pid = process.running(directory)
    if pid is not None:
        process.terminate(pid, timeout)
    show(changed=pid is not None)


def do_remove(arguments: argparse.Namespace) -> None:
    directory = arguments.dir.absolute()
    read(directory)
    if process.running(directory):
        raise Failure(f"the broker of {directory} runs; `stop` it first")
    shutil.rmtree(directory)
    show(changed=True)


def do_status(arguments: argparse.Namespace) -> None:
    directory = arguments.dir.absolute()
    instance = read(directory)
    show(
        running=process.running(directory) is not None,
        ready=process.ready(directory, instance),
        version=rootfs.version(Path(instance.root)),
        node=instance.node,
        amqp=f"{HOST}:{instance.amqp}",
        management=f"http://{HOST}:{instance.management}",
        admin=ADMIN,
        password_file=str(directory / "admin.password"),
    )


def do_ctl(arguments: argparse.Namespace) -> int:
    directory = arguments.dir.absolute()
    instance = read(directory)
    command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", *[word for word in arguments.command if word != "--"]]
    return subprocess.run(process.inside(directory, instance, command), check=False).returncode


VERBS = {
    "install": do_install,
    "configure": do_configure,
    "start": do_start,
    "run": do_run,
    "stop": do_stop,
    "kill": do_kill,
    "remove": do_remove,
    "status": do_status,
    "ctl": do_ctl,
}
