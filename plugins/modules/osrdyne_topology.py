#!/usr/bin/python
"""Ansible module: makes a broker's vhost have the topology of a pool, by the management API.

Reads each object and writes only what differs. Policies come before the exchanges and queues that they are for, and
the request exchange comes last, so that no request can arrive before its alternate route. What a broker cannot change
in place (type or arguments of a queue or exchange) is an error that says what to do. Nothing is deleted but a quorum
queue that the broker lost when it was killed, and that only where it is allowed: such a queue holds nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: osrdyne_topology
short_description: Applies a pool's topology to a broker
description: Vhost, users, permissions, policies, exchanges, queues and bindings; see osrdyne_protocol.broker.topology.
options:
  url: {description: Address of the management API, without user., type: str, required: true}
  tls: {description: "Files for https: cacertfile, certfile, keyfile.", type: dict, default: {}}
  admin: {description: Name of an administrator., type: str, required: true}
  admin_password: {description: The administrator's password., type: str, required: true}
  vhost: {description: The pool's vhost., type: str, required: true}
  topology: {description: What the filter osrdyne_topology returns., type: dict, required: true}
  passwords: {description: Password of each user of the topology., type: dict, required: true}
  lost: {description: "What to say of each static queue that the broker lost, by its name.", type: dict, default: {}}
  mend_lost: {description: Declare quorum queues that the broker lost again., type: bool, default: false}
  timeout: {description: Seconds to wait for one answer., type: float, default: 30}
author: osrdyne
"""
EXAMPLES = """
- name: Apply the topology
  osrdyne_topology:
    url: http://127.0.0.1:15672
    admin: admin
    admin_password: "{{ password }}"
    vhost: core
    topology: "{{ {'name': 'core'} | osrdyne_topology }}"
    passwords: "{{ passwords }}"
"""
RETURN = """
left_over: {description: Users of this pool without an instance., type: list, elements: str, returned: always}
changes: {description: What was made or altered, one line each., type: list, elements: str, returned: always}
"""

#: Hash functions of RabbitMQ's password_hash: base64 of four bytes of salt and hash(salt + password).
HASHES = {"rabbit_password_hashing_sha256": hashlib.sha256, "rabbit_password_hashing_sha512": hashlib.sha512}


#: Seconds between two looks that prove that a queue is lost; as in osrdyne_protocol.broker.lost.
LOOK_AGAIN = 3.0


class Refused(Exception):
    """The broker or its state does not let the topology be applied; the text says what to do."""


class Unreachable(Refused):
    """Nothing answers at the address."""


class Api:
    """The management API: GET always, PUT and POST only when this is no rehearsal."""

    def __init__(self, given: dict[str, Any], rehearse: bool) -> None:
        self.url, self.user, password = given["url"].rstrip("/"), given["admin"], given["admin_password"]
        self.timeout, self.rehearse = given["timeout"], rehearse
        self._token = base64.b64encode(f"{self.user}:{password}".encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=context(given["tls"])))
        self._opener = urllib.request.build_opener(*handlers)
        self.changes: list[str] = []
        #: Queues that a rehearsal would have deleted.
        self.gone: set[str] = set()

    def get(self, *path: str) -> Any:
        """What is there; None where there is nothing."""
        if path[0] in ("queues", "bindings") and path[-1] in self.gone:
            return None
        return self._call("GET", path, None)

    def delete_queue(self, vhost: str, name: str) -> None:
        self.changes.append(f"queue {name}, which the broker lost, deleted")
        if self.rehearse:
            self.gone.add(name)
        else:
            self._call("DELETE", ("queues", vhost, name), None)

    def change(self, what: str, method: str, *path: str, body: dict[str, Any]) -> None:
        self.changes.append(what)
        if not self.rehearse:
            self._call(method, path, body)

    def _call(self, method: str, path: tuple[str, ...], body: dict[str, Any] | None) -> Any:
        address = f"{self.url}/api/" + "/".join(quote(part, safe="") for part in path)
        request = urllib.request.Request(address, method=method)  # noqa: S310 - the user's own broker
        if body is not None:
            request.data = json.dumps(body).encode()
        request.add_header("Authorization", f"Basic {self._token}")
        request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and method == "GET":
                    return None
                raise Refused(self._explain(error, method, path)) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLError):
                hint = "name a CA that this machine does not know in the broker's address: ?cacertfile=/path/of/ca.pem"
                raise Refused(f"no TLS with {self.url}: {reason}; {hint}") from error
            hint = "is this the management API's address, and is that plugin enabled?"
            raise Unreachable(f"nothing answers at {self.url} ({error}); {hint}") from error
        return json.loads(text) if text else {}

    def _explain(self, error: urllib.error.HTTPError, method: str, path: tuple[str, ...]) -> str:
        if error.code == 401:
            return f"{self.url} does not accept user {self.user!r}: wrong password, or without the tag administrator"
        said = error.read(500).decode(errors="replace")
        return f"{method} {'/'.join(path)} was refused with {error.code}: {said}"


def context(tls: dict[str, str]) -> ssl.SSLContext:
    """A certificate is always verified."""
    try:
        made = ssl.create_default_context(cafile=tls.get("cacertfile"))
        if "certfile" in tls:
            made.load_cert_chain(tls["certfile"], tls.get("keyfile"), password="")
    except OSError as error:
        raise Refused(f"the files for TLS ({', '.join(tls.values())}) cannot be used: {error}") from error
    return made


def apply(api: Api, given: dict[str, Any]) -> None:
    """Everything, in the order in which nothing can be lost."""
    vhost, topology, passwords = given["vhost"], given["topology"], given["passwords"]
    refuse_instances(api, vhost, topology)
    deal_with_lost(api, vhost, topology, given["lost"], mend=given["mend_lost"])
    ensure_vhost(api, vhost)
    for user in topology["users"]:
        ensure_user(api, vhost, user, passwords[user["name"]])
    for permission in topology["permissions"]:
        ensure_permission(api, vhost, permission)
    for policy in topology["policies"]:
        ensure_policy(api, vhost, policy)
    # Where orphans go must be there before requests can come.
    last = [exchange for exchange in topology["exchanges"] if exchange["type"] == "direct"]
    for exchange in topology["exchanges"]:
        if exchange not in last:
            ensure_exchange(api, vhost, exchange)
    for queue in topology["queues"]:
        ensure_queue(api, vhost, queue)
    for binding in topology["bindings"]:
        ensure_binding(api, vhost, binding)
    for exchange in last:
        ensure_exchange(api, vhost, exchange)


def ensure_vhost(api: Api, vhost: str) -> None:
    if api.get("vhosts", vhost) is None:
        api.change(f"vhost {vhost}", "PUT", "vhosts", vhost, body={"description": "osrdyne"})
    if api.get("permissions", vhost, api.user) is None:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        api.change(f"permission {api.user}", "PUT", "permissions", vhost, api.user, body=everything)


def ensure_user(api: Api, vhost: str, user: dict[str, Any], password: str) -> None:
    """The broker keeps a salted hash, which is enough to tell whether a password is the one that is wanted."""
    found = api.get("users", user["name"])
    tags = sorted(user["tags"])
    if found is not None and not has_password(found, password):
        refuse_foreign(api, vhost, user["name"])
    if found is None or not has_password(found, password) or sorted(tags_of(found)) != tags:
        salt = os.urandom(4)
        body = {
            "password_hash": base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode(),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ",".join(tags),
        }
        api.change(f"user {user['name']}", "PUT", "users", user["name"], body=body)


def refuse_foreign(api: Api, vhost: str, name: str) -> None:
    """Users belong to the broker, not to a vhost: a new password would shut out the pool that uses the old one."""
    elsewhere = sorted(one["vhost"] for one in api.get("users", name, "permissions") or [] if one["vhost"] != vhost)
    if elsewhere:
        raise Refused(
            f"user {name} has another password and serves vhost {', '.join(elsewhere)}: a pool of this name is there "
            f"already; give this one another name, or delete that user if that pool is gone"
        )


def refuse_instances(api: Api, vhost: str, topology: dict[str, Any]) -> None:
    """Two instances in one vhost would serve the same queues, each with workers of its own."""
    ours = {user["name"] for user in topology["users"]}
    roles = {name.partition(".")[0] for name in ours}
    present = {name for name in users_in(api, vhost) if "." in name and name.partition(".")[0] in roles}
    foreign = sorted(present - ours)
    if foreign:
        raise Refused(
            f"vhost {vhost} holds another instance of this pool, with the users {', '.join(foreign)}, and two "
            f"instances never share a vhost: name another vhost for this one, or that instance in the pool's settings "
            f"if it is this one; delete those users if that instance is gone"
        )


def deal_with_lost(api: Api, vhost: str, topology: dict[str, Any], problems: dict[str, str], *, mend: bool) -> None:
    """Queues that the broker lost when it was killed are refused, before anything is changed, or deleted."""
    if api.get("vhosts", vhost) is None:
        return
    streams = lost_streams(api, vhost, topology)
    quorum = [queue["name"] for queue in topology["queues"] if queue["type"] == "quorum"]
    found = [name for name in quorum if never_led(api, vhost, name)]
    if found:
        # So is a queue for a moment while it is declared.
        time.sleep(LOOK_AGAIN)
        found = [name for name in found if never_led(api, vhost, name)]
    refused = streams if mend else [*found, *streams]
    if refused:
        said = [f"queue {name}: {problems.get(name, 'the broker lost it when it was killed')}" for name in refused]
        raise Refused("; ".join(said))
    for name in found:
        api.delete_queue(vhost, name)


def never_led(api: Api, vhost: str, queue: str) -> bool:
    """Whether no member of a quorum queue ever had a leader; see osrdyne_protocol.broker.quorum."""
    try:
        members = api.get("queues", "quorum", vhost, queue, "status")
    except Unreachable:
        raise
    except Refused:
        return False  # as while the broker starts the queue
    fresh = ("follower", 0, 0)
    return bool(members) and all((one["Raft State"], one["Term"], one["Last Log Index"]) == fresh for one in members)


def lost_streams(api: Api, vhost: str, topology: dict[str, Any]) -> list[str]:
    """Declared streams that the broker does not have, and whose bindings it has; see osrdyne_protocol.broker.lost."""
    streams = {queue["name"] for queue in topology["queues"] if queue["type"] == "stream"}
    bound = {one["destination"] for one in api.get("bindings", vhost) or [] if one["source"]}
    return sorted(name for name in streams & bound if api.get("queues", vhost, name) is None)


def left_over(api: Api, vhost: str, topology: dict[str, Any]) -> list[str]:
    """Users whose names have no instance, as all had once; they are still let in, and nothing of ours uses them."""
    named = {user["name"] for user in topology["users"] if "." in user["name"]}
    return sorted({name.partition(".")[0] for name in named} & users_in(api, vhost))


def users_in(api: Api, vhost: str) -> set[str]:
    return {one["user"] for one in api.get("vhosts", vhost, "permissions") or []}


def has_password(user: dict[str, Any], password: str) -> bool:
    digest = HASHES.get(user.get("hashing_algorithm", ""))
    stored = base64.b64decode(user.get("password_hash") or "")
    return digest is not None and stored[4:] == digest(stored[:4] + password.encode()).digest()


def tags_of(user: dict[str, Any]) -> list[str]:
    tags = user["tags"]
    return list(tags) if isinstance(tags, list) else [tag for tag in tags.split(",") if tag]


def ensure_permission(api: Api, vhost: str, permission: dict[str, str]) -> None:
    user = permission["user"]
    wanted = {name: permission[name] for name in ("configure", "write", "read")}
    found = api.get("permissions", vhost, user)
    if found is None or {name: found[name] for name in wanted} != wanted:
        api.change(f"permission {user}", "PUT", "permissions", vhost, user, body=wanted)


def ensure_policy(api: Api, vhost: str, policy: dict[str, Any]) -> None:
    wanted = {
        "pattern": policy["pattern"],
        "apply-to": policy["apply_to"],
        "definition": policy["definition"],
        "priority": policy["priority"],
    }
    found = api.get("policies", vhost, policy["name"])
    if found is None or {name: found[name] for name in wanted} != wanted:
        api.change(f"policy {policy['name']}", "PUT", "policies", vhost, policy["name"], body=wanted)


def ensure_exchange(api: Api, vhost: str, exchange: dict[str, Any]) -> None:
    wanted = {"type": exchange["type"], "durable": True, "auto_delete": False, "arguments": exchange["arguments"]}
    ensure_unchangeable(api, "exchange", "exchanges", vhost, exchange["name"], wanted)


def ensure_queue(api: Api, vhost: str, queue: dict[str, Any]) -> None:
    arguments = {**queue["arguments"], "x-queue-type": queue["type"]}
    wanted = {"durable": True, "auto_delete": False, "arguments": arguments}
    ensure_unchangeable(api, "queue", "queues", vhost, queue["name"], wanted)


def ensure_unchangeable(api: Api, kind: str, path: str, vhost: str, name: str, wanted: dict[str, Any]) -> None:
    found = api.get(path, vhost, name)
    if found is None:
        api.change(f"{kind} {name}", "PUT", path, vhost, name, body=wanted)
        return
    for field, value in wanted.items():
        if found[field] != value:
            raise Refused(
                f"{kind} {name} in vhost {vhost} has {field} {found[field]!r}, not {value!r}, which a broker cannot "
                f"change; empty it, delete it by hand and run this again"
            )


def ensure_binding(api: Api, vhost: str, binding: dict[str, str]) -> None:
    path = ("bindings", vhost, "e", binding["exchange"], "q", binding["queue"])
    found = api.get(*path) or []
    if not any(one["routing_key"] == binding["routing_key"] and not one["arguments"] for one in found):
        body = {"routing_key": binding["routing_key"], "arguments": {}}
        api.change(f"binding {binding['exchange']} to {binding['queue']}", "POST", *path, body=body)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "tls": {"type": "dict", "default": {}},
            "admin": {"type": "str", "required": True},
            "admin_password": {"type": "str", "required": True, "no_log": True},
            "vhost": {"type": "str", "required": True},
            "topology": {"type": "dict", "required": True},
            "passwords": {"type": "dict", "required": True, "no_log": True},
            "lost": {"type": "dict", "default": {}},
            "mend_lost": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 30.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    old: list[str] = []
    try:
        api = Api(given, module.check_mode)
    except Refused as refusal:
        module.fail_json(msg=str(refusal), changes=[])
    try:
        apply(api, given)
        old = left_over(api, given["vhost"], given["topology"])
    except Unreachable as refusal:
        if not module.check_mode:
            module.fail_json(msg=str(refusal), changes=api.changes)
        # A rehearsal on a machine that has no broker yet: all of it would be made.
        module.exit_json(changed=True, changes=["everything: there is no broker yet"], left_over=[])
    except Refused as refusal:
        module.fail_json(msg=str(refusal), changes=api.changes)
    if old:
        module.warn(
            f"users {', '.join(old)} of an earlier set-up still have rights in vhost {given['vhost']}; "
            f"delete them once nothing uses them: no name of the pool's users is without the instance any more"
        )
    module.exit_json(changed=bool(api.changes), changes=api.changes, left_over=old)


if __name__ == "__main__":
    main()
