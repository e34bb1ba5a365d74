"""What the cluster says before anything is previewed or changed. Only reads.

Pulumi's provider takes a cluster that does not answer for one without objects: a preview would be green, and `up`
would make one half.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import kubernetes
import yaml  # type: ignore[import-untyped]
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from osrdyne_infra.broker.settings import BrokerDeployment
from osrdyne_infra.cluster.settings import Cluster, PoolCluster, WorkerSettings
from osrdyne_infra.errors import ClusterUnusable
from osrdyne_protocol.errors import causes
from osrdyne_runtime import certificate_faults

KEDA, PROMETHEUS_OPERATOR, RABBITMQ_OPERATOR = "keda.sh", "monitoring.coreos.com", "rabbitmq.com"
#: What has an API group.
_NAMES = {
    KEDA: "KEDA",
    PROMETHEUS_OPERATOR: "the Prometheus operator",
    RABBITMQ_OPERATOR: "the RabbitMQ Cluster Operator",
}
#: The claim that Kubernetes makes for the one pod of the broker.
DISK = "data-broker-0"
#: Seconds to wait for one answer.
_TIMEOUT_SECONDS = 15
#: Parts of it have no types.
_library: Any = kubernetes


def needed(cluster: PoolCluster, workers: Mapping[str, WorkerSettings]) -> Iterator[tuple[str, str]]:
    """Return the API groups that the objects of pools need, each with the setting that asks for it."""
    for pool, settings in workers.items():
        if settings.autoscaling == "keda":
            yield KEDA, f"osrdyne:workers.{pool}.autoscaling"
    if cluster.monitoring == "prometheus-operator":
        yield PROMETHEUS_OPERATOR, "osrdyne:kubernetes.monitoring"


def check_broker(cluster: Cluster, wanted: BrokerDeployment) -> None:
    """Make sure that a broker can be made as it is declared. Raises ClusterUnusable.

    A StatefulSet changes no disk: another size would be declared, and the broker restarted for nothing.
    """
    if wanted.kind == "cluster-operator":
        check(cluster, [(RABBITMQ_OPERATOR, "osrdyne:broker_deployment.kind")])
        return
    for disk in check(cluster, disk=DISK):
        found = {"storage": disk.spec.resources.requests["storage"], "storage_class": disk.spec.storage_class_name}
        for name, there in found.items():
            if (declared := getattr(wanted, name)) and _amount(declared) != _amount(there):
                raise ClusterUnusable(
                    f"osrdyne:broker_deployment.{name} is {declared}, and the disk {DISK} in {cluster.namespace} has "
                    f"{there}: a StatefulSet does not change it. Set {there}; docs/howto/pulumi-kubernetes.md says how "
                    f"to change it by hand"
                )


def _amount(text: str) -> Any:
    """Return a number of bytes where a text is such an amount."""
    try:
        return _library.utils.parse_quantity(text)
    except ValueError:
        return text


def check(cluster: Cluster, groups: Collection[tuple[str, str]] = (), disk: str = "") -> list[Any]:
    """Make sure that the cluster answers with these credentials, and has these API groups. Raises ClusterUnusable.

    Return the claims in its namespace with the name `disk`.
    """
    chosen = f" with osrdyne:kubernetes.context {cluster.context}" if cluster.context else ""
    named = f"{'osrdyne:kubeconfig' if cluster.kubeconfig else 'the kubeconfig of this machine'}{chosen}"
    try:
        api = _api(cluster)
    # The library checks little of what it reads.
    except (yaml.YAMLError, ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # What YAML says has lines of the file, which may be secret.
        problem = "it is not YAML" if isinstance(error, yaml.YAMLError) else error
        raise ClusterUnusable(
            f"cannot use {named}: {problem}; give it with `pulumi config set --secret kubeconfig < FILE`"
        ) from None
    where = api.configuration.host
    try:
        with api:
            there = {
                group.name
                for group in _library.client.ApisApi(api).get_api_versions(_request_timeout=_TIMEOUT_SECONDS).groups
            }
            claims = _library.client.CoreV1Api(api).list_namespaced_persistent_volume_claim
            disks = (
                claims(
                    cluster.namespace, field_selector=f"metadata.name={disk}", _request_timeout=_TIMEOUT_SECONDS
                ).items
                if disk
                else []
            )
    except ApiException as error:
        refused = error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        said, do = (f"refuses the credentials of {named}:", "give others") if refused else ("answers", "try again")
        raise ClusterUnusable(f"the cluster at {where} {said} {error.status} {error.reason}; {do}") from None
    except (HTTPError, OSError) as error:
        *_, reason = causes(error)
        fault = certificate_faults.fault(error, authority=None, setting=f"certificate-authority in {named}")
        raise ClusterUnusable(
            f"the cluster at {where} does not answer: {fault or reason}; {named} has its address"
        ) from None
    for group, setting in groups:
        if group not in there:
            raise ClusterUnusable(
                f"{setting}: the cluster at {where} has no API {group}; install {_NAMES[group]}, or change the setting"
            )
    return list(disks)


def _api(cluster: Cluster) -> kubernetes.client.ApiClient:
    """Return the library's client, which tries nothing again."""
    configuration = _library.client.Configuration()
    configuration.retries = False
    file = io.StringIO(cluster.kubeconfig) if cluster.kubeconfig else None
    try:
        _library.config.load_kube_config(file, cluster.context or None, configuration, persist_config=False)
    except ConfigException:
        # A pod reaches its own cluster without a file, for Pulumi's provider too.
        if file or cluster.context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise
        _library.config.load_incluster_config(configuration)
    return kubernetes.client.ApiClient(configuration)
