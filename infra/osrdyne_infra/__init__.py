"""What is static in an environment, as Pulumi resources made from `osrdyne_pool.topology`.

Here belong: the stack's configuration, one component per file, and what a component must ask the broker first. Not
here: names, arguments and policies (the topology model has them), and anything that the daemon makes while it runs.

- For a program of one's own: what `__all__` names, of `components`; see docs/howto/pulumi-components.md.
- Configuration: `configuration`, of the settings in each folder, and the `checks` of values.
- Before a change: `preflight` judges what is declared and what is there. `errors` has every refusal.
- `broker`, `pool`, `jobs`, `relay`, `pipeline`, `cluster` and `monitoring`: what Pulumi makes, by what it is for.
  `ordering` says in which order resources are made and deleted.
- Resources of our own: `guard` and `mend` ask the broker while Pulumi works, `limits` are set there, `jobs_database` is
  on a database server, and `password` makes passwords. The state of a stack names their classes by these modules: so
  these stay where they are.
- For programs in other languages: `package`, of which `pulumi-resource-osrdyne` is the plugin. It also says how the
  resources of our own are declared.
- Programs of their own: `adopt` takes objects into a stack, and `hand_over` writes its outputs into files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osrdyne_infra.components.arguments import broker_settings, pool_settings
    from osrdyne_infra.components.broker import Broker
    from osrdyne_infra.components.cluster import ClusterProvider
    from osrdyne_infra.components.deployed_broker import DeployedBroker
    from osrdyne_infra.components.pool import Pool
    from osrdyne_infra.components.relay import Relay
    from osrdyne_infra.jobs_database import JobsDatabase

#: Where each public name is. Each is imported when it is asked for: that of a cluster takes seconds.
_PLACES = {
    "Broker": "components.broker",
    "ClusterProvider": "components.cluster",
    "DeployedBroker": "components.deployed_broker",
    "JobsDatabase": "jobs_database",
    "Pool": "components.pool",
    "Relay": "components.relay",
    "broker_settings": "components.arguments",
    "pool_settings": "components.arguments",
}

__all__ = [
    "Broker",
    "ClusterProvider",
    "DeployedBroker",
    "JobsDatabase",
    "Pool",
    "Relay",
    "broker_settings",
    "pool_settings",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
