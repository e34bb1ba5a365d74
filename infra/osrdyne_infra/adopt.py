"""Makes what is on a broker already the stack's: `python -m osrdyne_infra.adopt --stack NAME FILE`.

Reads the stack's configuration, as `pulumi config --json --show-secrets` has it, from standard input, asks the broker
which of the declared objects it has, and writes them into FILE for `pulumi import`. Prints the commands that adopt
them. Changes nothing itself, and never prints a password.

Queues and users are not imported: of some queues the provider reads the arguments in another form than they are
declared in, and would then replace them; the password of a user cannot be read. `pulumi up` declares them once more.
That changes nothing of a queue, because a broker refuses one that differs, and gives a user its new password.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from osrdyne_infra import configuration, preflight
from osrdyne_infra.broker import live
from osrdyne_infra.broker.live import Live
from osrdyne_infra.broker.management import Management
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import ConfigurationError, InfraError
from osrdyne_pool.topology import Exchange, Policy, Topology
from osrdyne_protocol import foreign_json
from osrdyne_runtime.console.streams import guarded

PROJECT = "osrdyne"
#: How the provider's resources are called in a stack's state.
TYPES = {
    "vhost": "rabbitmq:index/vHost:VHost",
    "exchange": "rabbitmq:index/exchange:Exchange",
    "binding": "rabbitmq:index/binding:Binding",
    "policy": "rabbitmq:index/policy:Policy",
    "permissions": "rabbitmq:index/permissions:Permissions",
}

COMMANDS = """\
pulumi config set --stack {stack} adopt true
pulumi up --yes --skip-preview --stack {stack}{targets}
pulumi import --yes --skip-preview --stack {stack} --protect=false --generate-code=false --file {file}
pulumi preview --stack {stack} --diff
pulumi up --yes --stack {stack}
pulumi config rm --stack {stack} adopt
"""


def main() -> None:
    """Read the configuration from standard input, write the file and print the commands."""
    parser = argparse.ArgumentParser(prog="python -m osrdyne_infra.adopt", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--stack", required=True, help="the stack that the objects are to belong to")
    parser.add_argument("file", type=Path, help="where the list for `pulumi import` is written")
    given = parser.parse_args()
    try:
        settings = read(foreign_json.read(sys.stdin.read()))
        broker, password = settings.broker, settings.admin_password
        assert isinstance(password, str)
        management = Management(broker.management, broker.admin, password, broker.cacertfile)
        found = live.read(management, settings.vhost, ())
        if not management.vhost_exists(settings.vhost):
            sys.exit(f"adopt: the broker has no vhost {settings.vhost}: there is nothing to adopt; run `pulumi up`")
        differing = [
            name for topology in preflight.topologies(settings) for name in sorted(preflight.replaced(topology, found))
        ]
        if differing:
            sys.exit(
                f"adopt: {', '.join(differing)} cannot be changed to what is declared; deal with the messages, delete "
                "each, and try again: `up` makes it again"
            )
        permissions = {permission["user"] for permission in management.get("vhosts", settings.vhost, "permissions")}
    except InfraError as error:
        sys.exit(f"adopt: {error}")
    except (ValueError, KeyError, TypeError, AttributeError):
        sys.exit("adopt: standard input has no configuration; give it that of `pulumi config --json --show-secrets`")
    listed = objects(given.stack, settings, found, permissions)
    given.file.write_text(json.dumps(listed, indent=2) + "\n")
    targets = "".join(f" \\\n  --target '{target}'" for target in listed["nameTable"].values())
    sys.stdout.write(COMMANDS.format(stack=given.stack, file=given.file, targets=targets))


def read(config: Mapping[str, Any]) -> StackSettings:
    """Return the settings that Pulumi prints. Raises ConfigurationError, and what other input raises."""
    values = {name if ":" in name else f"{configuration.NAMESPACE}:{name}": value for name, value in config.items()}
    raw = {
        path: json.dumps(value["objectValue"]) if "objectValue" in value else str(value["value"])
        for path, value in values.items()
    }
    secret = frozenset(path for path, value in values.items() if value["secret"])
    settings = configuration.parse(raw, secret)
    if not isinstance(settings, StackSettings):
        problem = "deploys a broker, where nothing is to be adopted; give the configuration of a stack of pools"
        raise ConfigurationError("osrdyne:broker_deployment", problem, configuration.EXAMPLES["pools"])
    return settings


def objects(stack: str, settings: StackSettings, found: Live, permissions: set[str]) -> dict[str, Any]:
    """Return the list for `pulumi import`: what is declared, and on the broker. `permissions` are those of users."""

    def urn(kind: str, name: str) -> str:
        return f"urn:pulumi:{stack}::{PROJECT}::{kind}::{name}"

    declared = preflight.topologies(settings)
    # No name here may be that of a resource below, or it would be taken for that one.
    names = {
        "the broker": urn("osrdyne:index:Broker$pulumi:providers:rabbitmq", "vhost"),
        "the vhost": urn("osrdyne:index:Broker", "vhost"),
    }
    names |= {f"objects of {topology.pool}": urn("osrdyne:index:Pool", topology.pool) for topology in declared}
    names |= {
        f"users of {topology.pool}": urn("osrdyne:index:Pool$osrdyne:broker:PoolUsers", topology.pool)
        for topology in declared
    }
    resources = [_entry("vhost", "vhost", settings.vhost, "the vhost")]
    if settings.broker.admin in permissions:
        resources.append(_entry("permissions", "vhost-admin", f"{settings.broker.admin}@{settings.vhost}", "the vhost"))
    for topology in declared:
        resources += _of_pool(topology, settings.vhost, found.topology, permissions)
    return {"nameTable": names, "resources": resources}


def _of_pool(one: Topology, vhost: str, there: Topology, permissions: set[str]) -> Iterator[dict[str, str]]:
    parent = f"objects of {one.pool}"
    named: list[tuple[str, Sequence[Policy | Exchange], set[str]]] = [
        ("policy", one.policies, {each.name for each in there.policies}),
        ("exchange", one.exchanges, {each.name for each in there.exchanges}),
    ]
    for kind, wanted, names in named:
        yield from (_entry(kind, each.name, f"{each.name}@{vhost}", parent) for each in wanted if each.name in names)
    for binding in one.bindings:
        if binding in there.bindings:
            # As the provider writes it; `~` is what the broker calls an empty routing key.
            encoded = vhost.replace("%", "%25").replace("/", "%2F")
            parts = (encoded, binding.exchange, binding.queue, binding.to, binding.routing_key or "~")
            yield _entry("binding", f"{binding.exchange}-to-{binding.queue}", "/".join(parts), parent)
    for permission in one.permissions:
        if permission.user in permissions:
            yield _entry("permissions", permission.user, f"{permission.user}@{vhost}", f"users of {one.pool}")


def _entry(kind: str, name: str, place: str, parent: str) -> dict[str, str]:
    return {"type": TYPES[kind], "name": name, "id": place, "parent": parent, "provider": "the broker"}


if __name__ == "__main__":
    with guarded("adopt"):
        main()
