#!/usr/bin/python
# MIT, see LICENSE; compatible with the GNU General Public License, version 3.
"""Ansible module: makes a broker's vhost have the topology of a pool, by the management API.

Takes the requests that declare each object, in their order, from the filter `osrdyne_requests`; it needs no package of
ours on the machine. Reads each object and writes only what differs. What a broker cannot change in place (type or
arguments of a queue or exchange) is an error that says what to do. Nothing is deleted but a quorum queue that the
broker lost when it was killed, and that only where it is allowed: such a queue holds nothing.
"""

from __future__ import annotations

DOCUMENTATION = """
module: osrdyne_topology
short_description: Applies a pool's topology to a broker
description: Vhost, users, permissions, limits, policies, exchanges, queues and bindings.
options:
  url: {description: Address of the management API without user; it may end with /api., type: str, required: true}
  tls: {description: "Files for https: cacertfile, certfile, keyfile.", type: dict, default: {}}
  certificate_faults: {description: "What is wrong with a certificate, by OpenSSL's code.", type: dict, default: {}}
  admin: {description: Name of an administrator., type: str, required: true}
  admin_password: {description: The administrator's password., type: str, required: true}
  vhost: {description: The pool's vhost., type: str, required: true}
  requests: {description: What the filter osrdyne_requests returns., type: list, elements: dict, required: true}
  vhost_limits: {description: "Higher limits of the vhost than the pools need, by name.", type: dict, default: {}}
  neighbours: {description: Other pools of the vhost that its limits count., type: list, elements: str, default: []}
  passwords: {description: Password of each user of the topology., type: dict, required: true}
  password_hashes: {description: "What the filter osrdyne_password_hash makes of each.", type: dict, required: true}
  lost: {description: "What to say of each static queue that the broker lost, by its name.", type: dict, default: {}}
  mend_lost: {description: Declare quorum queues that the broker lost again., type: bool, default: false}
  timeout: {description: Seconds to wait for one answer., type: float, default: 30}
attributes:
  check_mode: {support: full, description: "It says what it would change, and changes nothing."}
  diff_mode: {support: full, description: "It shows each object of the broker before and after, and never a password."}
author: The osrdyne authors (@osrdyne)
"""
EXAMPLES = """
- name: Apply the topology
  osrdyne.pool.osrdyne_topology:
    url: http://127.0.0.1:15672
    admin: admin
    admin_password: "{{ password }}"
    vhost: core
    requests: "{{ {'name': 'core'} | osrdyne.pool.osrdyne_requests('core') }}"
    passwords: "{{ passwords }}"
    password_hashes: "{{ dict(passwords.keys() | zip(hashes)) }}"
  vars:
    hashes: "{{ passwords.values() | map('osrdyne.pool.osrdyne_password_hash') }}"
"""
RETURN = """
left_over: {description: Users of this pool without an instance., type: list, elements: str, returned: always}
changes: {description: "What was made or altered, one line each.", type: list, elements: str, returned: always}
"""

import base64
import hashlib
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule

#: Hash functions of RabbitMQ's password_hash: base64 of four bytes of salt and hash(salt + password).
HASHES = {"rabbit_password_hashing_sha256": hashlib.sha256, "rabbit_password_hashing_sha512": hashlib.sha512}

#: What an object is called in a message, by the first part of its path.
KINDS = {
    "users": "user",
    "permissions": "permission",
    "policies": "policy",
    "exchanges": "exchange",
    "queues": "queue",
    "bindings": "binding",
}
#: Fields that no difference shows.
SECRET = ("password_hash", "hashing_algorithm")
#: What a difference shows in place of a password that is the one that was given.
RIGHT = "as it is wanted"
#: Kinds that a broker cannot change in place.
UNCHANGEABLE = ("exchanges", "queues")
#: Seconds between two looks that prove that a queue is lost; as in osrdyne_pool.broker.lost.
LOOK_AGAIN_SECONDS = 3.0


class TopologyRefused(Exception):
    """The broker or its state does not let the topology be applied; the text says what to do."""


class Unreachable(TopologyRefused):
    """Nothing answers at the address."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would get the password."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Api:
    """The management API: GET always, PUT and POST only when this is not a rehearsal."""

    def __init__(self, given: dict[str, Any], rehearse: bool) -> None:
        if "?" in given["url"]:
            raise TopologyRefused(
                "the address of the management API has a query; leave it out, and name the files of TLS in that of the "
                "broker (osrdyne_broker), or in tls"
            )
        self.url = given["url"].rstrip("/").removesuffix("/api")
        self.user, password = given["admin"], given["admin_password"]
        self.timeout, self.rehearse = given["timeout"], rehearse
        self._certificate_faults: dict[str, str] = given["certificate_faults"]
        self._token = base64.b64encode(f"{self.user}:{password}".encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), NoRedirect()]
        if self.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=context(given["tls"])))
        self._opener = urllib.request.build_opener(*handlers)
        self.changes: list[str] = []
        #: What each of them was before and is after, without passwords.
        self.diffs: list[dict[str, Any]] = []
        #: Queues that a rehearsal would have deleted.
        self.gone: set[str] = set()

    def get(self, *path: str) -> Any:
        """What is there; None where there is nothing."""
        if path[0] in ("queues", "bindings") and path[-1] in self.gone:
            return None
        return self._call("GET", path, None)

    def delete_queue(self, vhost: str, name: str) -> None:
        self._note(f"queue {name}, which the broker lost, deleted", {"queue": name}, {})
        if self.rehearse:
            self.gone.add(name)
        else:
            self._call("DELETE", ("queues", vhost, name), None)

    def change(
        self, what: str, method: str, *path: str, body: dict[str, Any], before: dict[str, Any] | None = None
    ) -> None:
        """Declare an object. `before` is what of the body's fields the broker has."""
        self._note(what, before or {}, body)
        if not self.rehearse:
            self._call(method, path, body)

    def _note(self, what: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        self.changes.append(what)
        shown = {name: value for name, value in after.items() if name not in SECRET}
        if "password_hash" in after:
            shown["password"] = RIGHT
        self.diffs.append({"before_header": what, "after_header": what, "before": before, "after": shown})

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
                raise TopologyRefused(self._explain(error, method, path)) from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLError):
                raise TopologyRefused(f"no TLS with {self.url}: {self._fault(reason)}") from error
            hint = "is this the management API's address, and is that plugin enabled?"
            raise Unreachable(f"nothing answers at {self.url} ({error}); {hint}") from error
        return json.loads(text) if text else {}

    def _fault(self, error: ssl.SSLError) -> str:
        """What is wrong with the broker's certificate and what to do, or OpenSSL's words for another fault of TLS."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return str(error)
        faults = self._certificate_faults
        fault = faults.get(str(error.verify_code)) or faults.get("0") or "name its CA by tls.cacertfile"
        return f"{error.verify_message}: {fault}"

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
        raise TopologyRefused(f"the files for TLS ({', '.join(tls.values())}) cannot be used: {error}") from error
    return made


def apply(api: Api, given: dict[str, Any]) -> None:
    """Everything, in the order of the requests."""
    vhost, requests = given["vhost"], given["requests"]
    refuse_instances(api, vhost, requests)
    if not given["vhost_limits"]:
        refuse_neighbours(api, vhost, requests, given["neighbours"])
    deal_with_lost(api, vhost, requests, given["lost"], mend=given["mend_lost"])
    ensure_vhost(api, vhost)
    for request in requests:
        kind, name = request["path"][0], request["path"][-1]
        if kind == "users":
            ensure_user(api, vhost, request, given["passwords"][name], given["password_hashes"][name])
        elif kind == "user-limits":
            ensure_limit(api, request["path"], request["body"]["value"])
        elif kind == "vhost-limits":
            least = max(request["body"]["value"], int(given["vhost_limits"].get(name, 0)))
            ensure_limit(api, request["path"], least, or_more=True)
        elif kind == "bindings":
            ensure_binding(api, request)
        else:
            ensure(api, vhost, request)


def ensure_vhost(api: Api, vhost: str) -> None:
    if api.get("vhosts", vhost) is None:
        api.change(f"vhost {vhost}", "PUT", "vhosts", vhost, body={"description": "osrdyne"})
    if api.get("permissions", vhost, api.user) is None:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        api.change(f"permission {api.user}", "PUT", "permissions", vhost, api.user, body=everything)


def ensure_user(api: Api, vhost: str, request: dict[str, Any], password: str, password_hash: str) -> None:
    """The broker keeps a salted hash, which is enough to see whether a password is the one that is wanted."""
    name = request["path"][-1]
    found = api.get("users", name)
    current = found is not None and has_password(found, password)
    if found is not None and not current:
        refuse_foreign(api, vhost, name)
    if found is None or not current or sorted(tags_of(found)) != sorted(tags_of(request["body"])):
        algorithm = "rabbit_password_hashing_sha256"
        body = {**request["body"], "password_hash": password_hash, "hashing_algorithm": algorithm}
        before = found and {"tags": ",".join(tags_of(found)), "password": RIGHT if current else "another"}
        api.change(f"user {name}", "PUT", "users", name, body=body, before=before)


def ensure_limit(api: Api, path: list[str], value: int, *, or_more: bool = False) -> None:
    """A limit of a vhost stays where it is higher: another pool may need that."""
    kind, owner, name = path
    found = dict(next((listed["value"] for listed in api.get(kind, owner) or []), {})).get(name)
    if found != value and not (or_more and found is not None and (found > value or found < 0)):
        what = f"limit {name} of {'user' if kind == 'user-limits' else 'vhost'} {owner}"
        before = None if found is None else {"value": found}
        api.change(f"{what}: {value}", "PUT", *path, body={"value": value}, before=before)


def ensure(api: Api, vhost: str, request: dict[str, Any]) -> None:
    path, body = request["path"], request["body"]
    kind, name = path[0], path[-1]
    found = api.get(*path)
    different = [field for field, value in body.items() if found is None or found.get(field) != value]
    if found is not None and different and kind in UNCHANGEABLE:
        field = different[0]
        raise TopologyRefused(
            f"{KINDS[kind]} {name} in vhost {vhost} has {field} {found[field]!r}, not {body[field]!r}, which a broker "
            f"cannot change; empty it, delete it by hand and run this again"
        )
    if different:
        before = found and {field: found.get(field) for field in body}
        api.change(f"{KINDS[kind]} {name}", request["method"], *path, body=body, before=before)


def ensure_binding(api: Api, request: dict[str, Any]) -> None:
    path, body = request["path"], request["body"]
    found = api.get(*path) or []
    if not any({field: listed[field] for field in body} == body for listed in found):
        api.change(f"binding {path[3]} to {path[5]}", request["method"], *path, body=body)


def refuse_foreign(api: Api, vhost: str, name: str) -> None:
    """Users belong to the broker, not to a vhost: a new password would shut out the pool that uses the old one."""
    elsewhere = sorted(
        permission["vhost"]
        for permission in api.get("users", name, "permissions") or []
        if permission["vhost"] != vhost
    )
    if elsewhere:
        raise TopologyRefused(
            f"user {name} has another password and serves vhost {', '.join(elsewhere)}: a pool of this name is there "
            f"already; give this one another name, or delete that user if that pool is gone"
        )


def refuse_instances(api: Api, vhost: str, requests: list[dict[str, Any]]) -> None:
    """Two instances in one vhost would serve the same queues, each with workers of its own."""
    ours = set(declared(requests, "users"))
    roles = {name.partition(".")[0] for name in ours}
    present = {name for name in users_in(api, vhost) if "." in name and name.partition(".")[0] in roles}
    foreign = sorted(present - ours)
    if foreign:
        raise TopologyRefused(
            f"vhost {vhost} holds another instance of this pool, with the users {', '.join(foreign)}, and two "
            f"instances never share a vhost: name another vhost for this one, or that instance in the pool's settings "
            f"if it is this one; delete those users if that instance is gone"
        )


def refuse_neighbours(api: Api, vhost: str, requests: list[dict[str, Any]], named: list[str]) -> None:
    """The limits of a vhost are for all of its pools, and only their settings say what each may take."""
    tail = "-req-xchg"
    there = {exchange["name"] for exchange in (api.get("exchanges", vhost) or []) if exchange["name"].endswith(tail)}
    foreign = sorted(name.removesuffix(tail) for name in there - set(declared(requests, "exchanges")))
    uncounted = [name for name in foreign if name not in named]
    if uncounted:
        raise TopologyRefused(
            f"vhost {vhost} holds pool {', '.join(uncounted)}, too, and its limits would not count it: name it in the "
            f"setting neighbours of this pool, with its limits, and this pool in the settings of that; or say what all "
            f"need together in topology_vhost_limits"
        )


def deal_with_lost(
    api: Api, vhost: str, requests: list[dict[str, Any]], problems: dict[str, str], *, mend: bool
) -> None:
    """Queues that the broker lost when it was killed are refused, before anything is changed, or deleted."""
    if api.get("vhosts", vhost) is None:
        return
    streams = lost_streams(api, vhost, declared(requests, "queues", "stream"))
    quorum = declared(requests, "queues", "quorum")
    found = [name for name in quorum if never_led(api, vhost, name)]
    if found:
        # So is a queue for a moment while it is declared.
        time.sleep(LOOK_AGAIN_SECONDS)
        found = [name for name in found if never_led(api, vhost, name)]
    refused = streams if mend else [*found, *streams]
    if refused:
        said = [f"queue {name}: {problems.get(name, 'the broker lost it when it was killed')}" for name in refused]
        raise TopologyRefused("; ".join(said))
    for name in found:
        api.delete_queue(vhost, name)


def never_led(api: Api, vhost: str, queue: str) -> bool:
    """Whether no member of a quorum queue ever had a leader; see osrdyne_pool.broker.quorum."""
    try:
        members = api.get("queues", "quorum", vhost, queue, "status")
    except Unreachable:
        raise
    except TopologyRefused:
        return False  # as while the broker starts the queue
    fresh = ("follower", 0, 0)
    return bool(members) and all(
        (member["Raft State"], member["Term"], member["Last Log Index"]) == fresh for member in members
    )


def lost_streams(api: Api, vhost: str, streams: list[str]) -> list[str]:
    """Declared streams that the broker does not have, and whose bindings it has; see osrdyne_pool.broker.lost."""
    bound = {binding["destination"] for binding in api.get("bindings", vhost) or [] if binding["source"]}
    return sorted(name for name in streams if name in bound and api.get("queues", vhost, name) is None)


def left_over(api: Api, vhost: str, requests: list[dict[str, Any]]) -> list[str]:
    """Users whose names have no instance, as all had once; they are still let in, and nothing of ours uses them."""
    named = [name for name in declared(requests, "users") if "." in name]
    return sorted({name.partition(".")[0] for name in named} & users_in(api, vhost))


def declared(requests: list[dict[str, Any]], kind: str, queue_type: str = "") -> list[str]:
    """Names of the declared objects of a kind; of queues, those of a type."""
    of_kind = [request for request in requests if request["path"][0] == kind]
    return [
        request["path"][-1]
        for request in of_kind
        if not queue_type or request["body"]["arguments"]["x-queue-type"] == queue_type
    ]


def users_in(api: Api, vhost: str) -> set[str]:
    return {permission["user"] for permission in api.get("vhosts", vhost, "permissions") or []}


def has_password(user: dict[str, Any], password: str) -> bool:
    digest = HASHES.get(user.get("hashing_algorithm", ""))
    stored = base64.b64decode(user.get("password_hash") or "")
    return digest is not None and stored[4:] == digest(stored[:4] + password.encode()).digest()


def tags_of(user: dict[str, Any]) -> list[str]:
    tags = user["tags"]
    return list(tags) if isinstance(tags, list) else [tag for tag in tags.split(",") if tag]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "tls": {"type": "dict", "default": {}},
            "certificate_faults": {"type": "dict", "default": {}},
            "admin": {"type": "str", "required": True},
            "admin_password": {"type": "str", "required": True, "no_log": True},
            "vhost": {"type": "str", "required": True},
            "requests": {"type": "list", "elements": "dict", "required": True},
            "passwords": {"type": "dict", "required": True, "no_log": True},
            "password_hashes": {"type": "dict", "required": True, "no_log": True},
            "lost": {"type": "dict", "default": {}},
            "mend_lost": {"type": "bool", "default": False},
            "vhost_limits": {"type": "dict", "default": {}},
            "neighbours": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "float", "default": 30.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    old: list[str] = []
    try:
        api = Api(given, module.check_mode)
    except TopologyRefused as refusal:
        module.fail_json(msg=str(refusal), changes=[])
    try:
        apply(api, given)
        old = left_over(api, given["vhost"], given["requests"])
    except Unreachable as refusal:
        if not module.check_mode:
            module.fail_json(msg=str(refusal), changes=api.changes)
        # A rehearsal on a machine that has no broker yet: all of it would be made.
        module.exit_json(changed=True, changes=["everything: there is no broker yet"], left_over=[])
    except TopologyRefused as refusal:
        module.fail_json(msg=str(refusal), changes=api.changes)
    if old:
        module.warn(
            f"users {', '.join(old)} of an earlier set-up still have rights in vhost {given['vhost']}; "
            f"delete them once nothing uses them: no name of the pool's users is without the instance any more"
        )
    shown = {"diff": api.diffs} if module._diff else {}
    module.exit_json(changed=bool(api.changes), changes=api.changes, left_over=old, **shown)


if __name__ == "__main__":
    main()
