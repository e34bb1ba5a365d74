"""A Service for the daemons' endpoints, and where the cluster has them: what Prometheus and Grafana look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core.v1 import ServicePortArgs, ServiceSpecArgs

from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.cluster.settings import PoolCluster
from osrdyne_infra.monitoring import alerts, dashboard
from osrdyne_infra.ordering import inside
from osrdyne_infra.pool.config import STATUS_PORT, daemon_service
from osrdyne_infra.pool.daemon_deployment import STATUS, labels

#: Version of the Prometheus operator's objects.
OPERATOR = "monitoring.coreos.com/v1"
#: By which Grafana's sidecar finds dashboards, unless it is configured otherwise.
DASHBOARD = {"grafana_dashboard": "1"}


class Monitoring(pulumi.ComponentResource):
    """How the daemons of one pool are watched."""

    def __init__(self, pool: str, cluster: PoolCluster, place: Place, parent: pulumi.ComponentResource) -> None:
        super().__init__("osrdyne:kubernetes:Monitoring", place.own(pool), None, inside(parent))
        self._place, self._found_by = place, cluster.monitoring_labels
        name, namespace = daemon_service(pool), cluster.pool_namespace(pool)
        kubernetes.core.v1.Service(
            self._place.own(name),
            # No program sends requests here: `up` need not wait for an answer.
            metadata=place.metadata(name, labels(pool), {"pulumi.com/skipAwait": "true"}),
            spec=ServiceSpecArgs(
                selector=labels(pool),
                ports=[ServicePortArgs(name=STATUS, port=STATUS_PORT, target_port=STATUS)],
                # Also a daemon that is not ready says why.
                publish_not_ready_addresses=True,
            ),
            opts=part(self),
        )
        if cluster.monitoring == "prometheus-operator":
            self._custom("ServiceMonitor", name, _service_monitor(pool))
            self._custom("PrometheusRule", name, {"groups": [{"name": name, "rules": alerts.rules(pool, namespace)}]})
            kubernetes.core.v1.ConfigMap(
                self._place.own(f"{pool}-dashboard"),
                metadata=place.metadata(f"{pool}-dashboard", DASHBOARD),
                data={f"osrdyne-{pool}.json": dashboard.text(pool, namespace)},
                opts=part(self),
            )
        self.register_outputs({})

    def _custom(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        kubernetes.apiextensions.CustomResource(
            self._place.own(f"{name}-{kind.lower()}"),
            api_version=OPERATOR,
            kind=kind,
            metadata=self._place.metadata(name, self._found_by),
            spec=spec,
            opts=part(self),
        )


def _service_monitor(pool: str) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": labels(pool)},
        "endpoints": [{"port": STATUS, "path": "/metrics", "interval": "30s"}],
    }
