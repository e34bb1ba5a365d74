"""The directory of one broker: its parameters, its configuration and its secrets, each file 0600."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import secrets
from pathlib import Path

from . import plugins
from .failure import Failure

ADMIN = "osrdyne-admin"
#: Every listener of the broker is bound to this address only.
HOST = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Instance:
    """The parameters of `start`, kept as instance.json so that every later verb needs the directory alone."""

    root: str
    user: str
    amqp: int
    management: int
    stream: int
    prometheus: int
    dist: int
    epmd: int
    #: Milliseconds between two samples of connections, channels and classic queues (broker's default 5000).
    collect_statistics_interval: int
    #: Milliseconds between two samples of a quorum queue (broker's default 5000).
    quorum_tick_interval: int
    #: Memory in MB above which the broker blocks publishers.
    memory: int
    #: Bytes of a log, and how many older ones are kept. Each has a value by itself: an instance may be older.
    log_bytes: int = 10_000_000
    log_files: int = 10

    @property
    def node(self) -> str:
        return f"rabbit-{self.amqp}@localhost"

    @property
    def sample(self) -> int:
        """Seconds between two looks of the management plugin at what was sampled: whole, 1 at least, 5 by
        default.
        """
        return max(1, round(max(self.collect_statistics_interval, self.quorum_tick_interval) / 1000))

    def ports(self) -> list[int]:
        return [self.amqp, self.management, self.stream, self.prometheus]


def configure(directory: Path, instance: Instance) -> bool:
    """Writes the files of an instance; says whether any of them changed. A password once made is kept."""
    account = pwd.getpwnam(instance.user)
    for name in ("", "etc", "data", "log"):
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        os.chown(folder, account.pw_uid, account.pw_gid)
    password = directory / "admin.password"
    if not password.exists():
        put(password, secrets.token_urlsafe(24), account)
    if not (directory / "data/.erlang.cookie").exists():
        put(directory / "data/.erlang.cookie", secrets.token_hex(20), account, 0o400)
    texts = files(instance, password.read_text())
    changed = [put(directory / name, text, account) for name, text in texts.items()]
    return any(changed)


def differs(directory: Path, instance: Instance) -> bool:
    """Whether `configure` would change anything."""
    if not (directory / "admin.password").exists():
        return True
    texts = files(instance, (directory / "admin.password").read_text())
    return any(not (directory / name).exists() or (directory / name).read_text() != texts[name] for name in texts)


def files(instance: Instance, password: str) -> dict[str, str]:
    """The text of every file that follows from the parameters of an instance, by its name in the directory."""
    return {
        "etc/rabbitmq.conf": rabbitmq_conf(instance, password),
        "etc/advanced.config": advanced_config(instance),
        "etc/enabled_plugins": plugins.USUAL,
        "etc/hosts": f"{HOST} localhost\n",
        "instance.json": json.dumps(dataclasses.asdict(instance), indent=2) + "\n",
    }


def advanced_config(instance: Instance) -> str:
    """What rabbitmq.conf has no name for, in 4.0 and 4.3; and all about the log, because this replaces it whole.

    The log has its name here: beside the variable RABBITMQ_LOGS, a broker ignores how it should be rotated. A crash of
    the broker is logged with the message that it came from. Without a limit, 2 MB of it take 3 GB of memory.
    """
    return f"""\
[{{rabbit, [
  {{quorum_tick_interval, {instance.quorum_tick_interval}}},
  {{log, [{{file, [
    {{file, "broker.log"}}, {{level, info}}, {{size, {instance.log_bytes}}}, {{count, {instance.log_files}}},
    {{formatter, {{logger_formatter, #{{
      chars_limit => 10000, template => [time, " [", level, "] ", pid, " ", msg, "\\n"]
    }}}}}}
  ]}}]}}
]}}].
"""


def rabbitmq_conf(instance: Instance, password: str) -> str:
    return f"""\
listeners.tcp.1 = {HOST}:{instance.amqp}
management.tcp.ip = {HOST}
management.tcp.port = {instance.management}
stream.listeners.tcp.1 = {HOST}:{instance.stream}
stream.advertised_host = {HOST}
stream.advertised_port = {instance.stream}
prometheus.tcp.ip = {HOST}
prometheus.tcp.port = {instance.prometheus}
default_user = {ADMIN}
default_pass = {password}
raft.wal_max_size_bytes = 64000000
collect_statistics_interval = {instance.collect_statistics_interval}
vm_memory_high_watermark.absolute = {instance.memory}MB
disk_free_limit.absolute = 200MB
log.dir = /var/log/rabbitmq
management.sample_retention_policies.global.minute = {instance.sample}
management.sample_retention_policies.global.hour = 60
management.sample_retention_policies.global.day = 1200
management.sample_retention_policies.basic.minute = {instance.sample}
management.sample_retention_policies.basic.hour = 60
management.sample_retention_policies.detailed.10 = {instance.sample}
"""


def put(path: Path, text: str, account: pwd.struct_passwd, mode: int = 0o600) -> bool:
    """Writes a file that only `account` may read, whole or not at all; says whether its text changed."""
    if path.exists() and path.read_text() == text:
        return False
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchown(file.fileno(), account.pw_uid, account.pw_gid)
        file.write(text)
    fresh.rename(path)
    return True


def read(directory: Path) -> Instance:
    try:
        return Instance(**json.loads((directory / "instance.json").read_text()))
    except (FileNotFoundError, TypeError) as error:
        raise Failure(f"{directory} holds no broker ({error}); `start` makes one") from error
