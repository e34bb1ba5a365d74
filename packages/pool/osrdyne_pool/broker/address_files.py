"""The files with the addresses of a pool's broker users, which infrastructure code and `osrdyne pool` write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What a broker's address is for, by the name of the file that holds it: the role of its user, and the interface.
ADDRESS_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "client.uri": ("client", "amqp"),
    "worker.uri": ("worker", "amqp"),
    "daemon.uri": ("daemon", "amqp"),
    "daemon-management.uri": ("daemon", "management"),
    "monitor.uri": ("monitor", "amqp"),
    "monitor-management.uri": ("monitor", "management"),
    "operator.uri": ("operator", "amqp"),
    "pipeline.uri": ("pipeline", "amqp"),
}
