"""Declare a pool's exchanges, queues, bindings and policies: `python declare_pool.py POOL`.

AMQP_URI names the virtual host, MANAGEMENT_URI the management API, as in http://USER:PASSWORD@HOST:15672. Objects that
exist already do not change. It declares no users and no limits: everything runs as the one user of these addresses. For
users with few rights, see docs/howto/pulumi.md.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import unquote, urlsplit

from osrdyne_pool.broker.management import ManagementClient
from osrdyne_pool.broker.management_json import requests
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology


def declare(management_uri: str, vhost: str, pool: str) -> None:
    """Declare a pool in a virtual host, by the management API of its broker."""
    address = urlsplit(management_uri)
    server = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
    broker = ManagementClient(server, unquote(address.username or ""), unquote(address.password or ""))
    declared = topology(PoolSettings(pool))
    for request in requests(declared, vhost):
        if request.path[0] in ("users", "permissions", "user-limits", "vhost-limits"):
            continue
        broker.call(request.method, *request.path, body=request.body)
    print(f"the pool {pool} is declared: {len(declared.exchanges)} exchanges, {len(declared.queues)} queues")


if __name__ == "__main__":
    name = unquote(urlsplit(os.environ["AMQP_URI"]).path.removeprefix("/")) or "/"
    declare(os.environ["MANAGEMENT_URI"], name, *sys.argv[1:])
