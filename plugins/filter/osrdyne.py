"""Ansible filters over `osrdyne_pool`: pool settings in, topology out. They run where the playbook runs."""
# MIT, see LICENSE; compatible with the GNU General Public License, version 3.

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ansible.errors import AnsibleFilterError

# The packages that came with this file, and not those of another version that Ansible's Python may have.
_PACKAGES = Path(__file__).resolve().parents[2] / "packages"
sys.path[:0] = [str(_PACKAGES / name) for name in ("pool", "protocol", "runtime")]

from osrdyne_pool.broker import default_login, lost, management_json
from osrdyne_pool.broker.address_files import ADDRESS_FILES
from osrdyne_pool.lint import lint
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.names import DatabaseNames
from osrdyne_runtime import certificate_faults
from osrdyne_runtime.settings_text import to_toml


def osrdyne_topology(pool: Mapping[str, Any]) -> dict[str, Any]:
    """The topology of a pool as plain data. Fails for settings that are wrong and for what the linter refuses."""
    try:
        wanted = topology(PoolSettings.from_mapping(plain(pool)))
    except SettingsError as error:
        raise AnsibleFilterError(str(error)) from error
    findings = lint(wanted)
    if findings:
        raise AnsibleFilterError("the topology is not sound: " + "; ".join(str(finding) for finding in findings))
    return dataclasses.asdict(wanted)


def osrdyne_requests(pool: Mapping[str, Any], vhost: str) -> list[dict[str, Any]]:
    """The requests that declare the topology of a pool in a vhost, for the module osrdyne_topology."""
    wanted = topology(PoolSettings.from_mapping(plain(pool)))
    return [plain(dataclasses.asdict(request)) for request in management_json.requests(wanted, str(vhost))]


def osrdyne_lost_queues(pool: Mapping[str, Any], vhost: str) -> dict[str, str]:
    """What to say of each static queue of a pool that the broker lost, by its name."""
    return lost.problems(topology(PoolSettings.from_mapping(plain(pool))), str(vhost))


def osrdyne_credentials(wanted: Mapping[str, Any], passwords: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Name and password of the broker user of each role."""
    users = wanted["users"]
    return {user["role"]: {"name": user["name"], "password": passwords[user["name"]]} for user in users}


def osrdyne_address_files(
    credentials: Mapping[str, Mapping[str, str]],
    places: Mapping[str, str],
    vhost: str,
    query: str,
    owners: Mapping[str, str],
) -> list[dict[str, str]]:
    """The file of each role's broker address, for the module osrdyne_files.

    `places` are the addresses of the interfaces `amqp` and `management` without a user, `query` is what both say about
    TLS, and `owners` names the account of each role's files. A role without credentials has none.
    """
    files = []
    for name, (role, interface) in ADDRESS_FILES.items():
        if role not in credentials:
            continue
        login = ":".join(quote(str(credentials[role][part]), safe="") for part in ("name", "password"))
        scheme, separator, place = str(places[interface]).partition("://")
        path = f"/{quote(str(vhost), safe='')}" if interface == "amqp" else ""
        files.append(
            {"name": name, "content": f"{scheme}{separator}{login}@{place}{path}{query}\n", "owner": str(owners[role])}
        )
    return files


def osrdyne_database_users(pool: Mapping[str, Any]) -> list[str]:
    """Names of the two users that the database of a pool's jobs has."""
    names = _database_names(pool)
    return [names.owner, names.database]


def osrdyne_database_address(place: str, pool: Mapping[str, Any], user: str, passwords: Mapping[str, str]) -> str:
    """The address of the database of a pool's jobs for its `owner`, or for the programs (`database`).

    `place` is another address on that server: its host, port and query are taken.
    """
    names = _database_names(pool)
    name = str(getattr(names, user))
    split = urlsplit(str(place))
    login = f"{quote(name, safe='')}:{quote(str(passwords[name]), safe='')}"
    host = split.netloc.rpartition("@")[2]
    return f"postgresql://{login}@{host}/{quote(names.database, safe='')}{f'?{split.query}' if split.query else ''}"


def _database_names(pool: Mapping[str, Any]) -> DatabaseNames:
    try:
        settings = PoolSettings.from_mapping(plain(pool))
    except SettingsError as error:
        raise AnsibleFilterError(str(error)) from error
    return DatabaseNames.of(settings.name, settings.instance)


def osrdyne_password_hash(password: str) -> str:
    """RabbitMQ's password_hash of algorithm rabbit_password_hashing_sha256, with a new salt."""
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def osrdyne_default_login(user: Mapping[str, Any]) -> str:
    """What to say of a broker's user, as its management API shows it, if it is guest with the password guest."""
    return default_login.problem(plain(user))


def osrdyne_open_files(command: list[str], number: int) -> list[str]:
    """The command with a soft limit of `number` open files, or with as many as the system lets it have."""
    script = f'ulimit -n {int(number)} 2>/dev/null || ulimit -S -n "$(ulimit -H -n)"; exec "$@"'
    return ["/bin/sh", "-c", script, "sh", *command]


def osrdyne_address(address: str, part: str) -> str:
    """A part of an AMQP address, decoded: hostname, port, username, password, vhost. `place` is the address without
    user and vhost, `management` the usual one of that broker's management API, and `query` what it says about TLS.

    Ansible's own filters take a `+` for a space, as forms do and addresses do not.
    """
    split = urlsplit(address)
    secure = split.scheme == "amqps"
    try:
        port = split.port or (5671 if secure else 5672)
    except ValueError:
        # Without what is there: it is a part of the password when a "/" in that is not encoded.
        message = "the broker's address has no number as its port; is a special character not percent-encoded?"
        raise AnsibleFilterError(message) from None
    host = split.hostname or ""
    bracketed = f"[{host}]" if ":" in host else host
    parts = {
        "hostname": host,
        "port": str(port),
        "username": unquote(split.username or ""),
        "password": unquote(split.password or ""),
        "vhost": unquote(split.path[1:]),
        "query": f"?{split.query}" if split.query else "",
        "place": f"{split.scheme}://{bracketed}:{port}",
        "management": f"https://{bracketed}:15671" if secure else f"http://{bracketed}:15672",
    }
    return parts[part]


def osrdyne_tls(address: str) -> dict[str, str]:
    """The files that an address names in its query: cacertfile, certfile, keyfile."""
    named = dict(parse_qsl(urlsplit(address).query))
    return {name: named[name] for name in ("cacertfile", "certfile", "keyfile") if name in named}


def osrdyne_certificate_faults(tls: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with a broker's certificate and what to do, by OpenSSL's code; `tls` has the files to use."""
    setting = "?cacertfile=/path/of/ca.pem in the broker's address"
    return certificate_faults.texts(authority=tls.get("cacertfile"), setting=setting)


def osrdyne_toml(document: Mapping[str, Any]) -> str:
    """A settings file of the daemon."""
    return to_toml(plain(document))


def plain(value: Any) -> Any:
    """Ansible's strings and mappings carry tags; what is given on must be Python's own."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Any]:
        return {
            "osrdyne_topology": osrdyne_topology,
            "osrdyne_requests": osrdyne_requests,
            "osrdyne_lost_queues": osrdyne_lost_queues,
            "osrdyne_credentials": osrdyne_credentials,
            "osrdyne_address": osrdyne_address,
            "osrdyne_address_files": osrdyne_address_files,
            "osrdyne_database_address": osrdyne_database_address,
            "osrdyne_database_users": osrdyne_database_users,
            "osrdyne_default_login": osrdyne_default_login,
            "osrdyne_open_files": osrdyne_open_files,
            "osrdyne_password_hash": osrdyne_password_hash,
            "osrdyne_tls": osrdyne_tls,
            "osrdyne_certificate_faults": osrdyne_certificate_faults,
            "osrdyne_toml": osrdyne_toml,
        }
