"""Declare a pool's exchanges, queues, bindings and policies: `python declare_pool.py POOL`.

AMQP_URI names the virtual host, MANAGEMENT_URI the management API, as in http://USER:PASSWORD@HOST:15672. Objects that
exist already do not change. It declares no users and no limits: everything runs as the one user of these addresses. For
users with few rights, see docs/howto/pulumi.md.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import urllib.request
from urllib.parse import quote, unquote, urlsplit

from osrdyne_pool.broker.management_json import requests
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology


def declare(management_uri: str, vhost: str, pool: str) -> None:
    """Declare a pool in a virtual host, by the management API of its broker."""
    address = urlsplit(management_uri)
    login = f"{unquote(address.username or '')}:{unquote(address.password or '')}".encode()
    header = {"Authorization": f"Basic {base64.b64encode(login).decode()}", "Content-Type": "application/json"}
    api = f"{address.scheme}://{address.netloc.rpartition('@')[2]}/api"
    declared = topology(PoolSettings(pool))
    for one in requests(declared, vhost):
        if one.path[0] in ("users", "permissions", "user-limits", "vhost-limits"):
            continue
        url = "/".join([api, *(quote(part, safe="") for part in one.path)])
        request = urllib.request.Request(url, json.dumps(one.body).encode(), header, method=one.method)  # noqa: S310
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
    print(f"the pool {pool} is declared: {len(declared.exchanges)} exchanges, {len(declared.queues)} queues")


if __name__ == "__main__":
    name = unquote(urlsplit(os.environ["AMQP_URI"]).path.removeprefix("/")) or "/"
    declare(os.environ["MANAGEMENT_URI"], name, *sys.argv[1:])
