"""The table [driver] for Kubernetes: from the file to a driver, and what ends the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne.drivers.base import Driver
from osrdyne.drivers.kubernetes.driver import KubernetesDriver
from osrdyne.settings.daemon import DaemonSettings, load
from osrdyne_protocol.errors import SettingsError

SETTINGS = """
[pool]
name = "core"
[broker]
amqp_uri = "amqp://daemon:verysecret@localhost:5672/pool"
management_uri = "http://daemon:verysecret@localhost:15672"
[driver]
kind = "kubernetes"
template_directory = "{directory}"
worker_secret = "core-worker"
"""
DEPLOYMENT = "spec: {template: {spec: {containers: [{name: worker, image: worker}]}}}"


def written(directory: Path, *, more: str = "", deployment: str | None = DEPLOYMENT) -> Path:
    if deployment is not None:
        (directory / "deployment.yaml").write_text(deployment)
    file = directory / "settings.toml"
    file.write_text(SETTINGS.format(directory=directory) + more)
    return file


def opened(found: DaemonSettings) -> Driver:
    return found.driver.open(found.pool)


async def test_the_settings_make_the_driver(tmp_path: Path) -> None:
    driver = opened(load(written(tmp_path, more='container = "worker"\n')))
    assert isinstance(driver, KubernetesDriver)
    assert driver.owns_workers
    assert driver.template
    await driver.close()


@pytest.mark.parametrize(
    ("more", "deployment", "says"),
    [
        ("", None, "deployment.yaml cannot be read"),
        ("", "spec: {}", "spec.template: is missing"),
        ('autoscaling = "keda"\n', DEPLOYMENT, "scaledobject.yaml cannot be read"),
        ('autoscaling = "vpa"\n', DEPLOYMENT, "driver.kubernetes.autoscaling"),
        ('container = "other"\n', DEPLOYMENT, "no 'other'"),
        ('kubeconfig = "/not/there"\n', DEPLOYMENT, "driver.kubeconfig: /not/there is not a file"),
        ('worker_amqp_uri = "amqp://x"\n', DEPLOYMENT, "worker_amqp_uri"),
    ],
)
async def test_settings_that_cannot_be_right_end_the_start(
    tmp_path: Path, more: str, deployment: str | None, says: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        opened(load(written(tmp_path, more=more, deployment=deployment)))
    assert says in str(refused.value)
