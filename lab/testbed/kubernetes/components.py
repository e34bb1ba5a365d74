"""Command line and configuration of every part of the cluster: pure functions of its layout.

Ports need not be free on the machine: each cluster has a network namespace of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.kubernetes.layout import API_PORT, DOMAIN, MAX_PODS, NODE, PODS, SERVICES, Layout
from testbed.pem import Certificate

ETCD = "http://127.0.0.1:2379"
ETCD_PEERS = "http://127.0.0.1:2380"
PAUSE_IMAGE = "osrdyne.invalid/pause:test"
#: Where Debian's containernetworking-plugins has its programs.
PLUGINS = "/usr/lib/cni"


def etcd(layout: Layout) -> list[str]:
    return [
        str(layout.etcd / "etcd"),
        f"--data-dir={layout.state}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={ETCD_PEERS}",
        f"--initial-advertise-peer-urls={ETCD_PEERS}",
        f"--initial-cluster=default={ETCD_PEERS}",
    ]


def api_server(layout: Layout, serving: Certificate, kubelet: Certificate, front: Certificate) -> list[str]:
    pki = layout.certificates
    return [
        str(layout.kubernetes / "kube-apiserver"),
        f"--etcd-servers={ETCD}",
        "--bind-address=0.0.0.0",
        f"--secure-port={API_PORT}",
        f"--advertise-address={layout.address}",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.pem",
        f"--tls-cert-file={serving.certfile}",
        f"--tls-private-key-file={serving.keyfile}",
        f"--kubelet-client-certificate={kubelet.certfile}",
        f"--kubelet-client-key={kubelet.keyfile}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/tokens.pub",
        f"--service-account-signing-key-file={pki}/tokens.key",
        f"--requestheader-client-ca-file={pki}/ca.pem",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={front.certfile}",
        f"--proxy-client-key-file={front.keyfile}",
        # Add-ons are reached at their endpoints; the address of their Service may not be routed yet.
        "--enable-aggregator-routing=true",
        "--profiling=false",
    ]


def controller_manager(layout: Layout) -> list[str]:
    pki = layout.certificates
    return [
        str(layout.kubernetes / "kube-controller-manager"),
        *_own_kubeconfigs(layout.config("controller-manager.kubeconfig")),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/tokens.key",
        f"--root-ca-file={pki}/ca.pem",
        f"--cluster-signing-cert-file={pki}/ca.pem",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        # So that a test sees an autoscaler act within seconds.
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=10s",
        "--profiling=false",
    ]


def scheduler(layout: Layout) -> list[str]:
    return [
        str(layout.kubernetes / "kube-scheduler"),
        *_own_kubeconfigs(layout.config("scheduler.kubeconfig")),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def kubelet(layout: Layout) -> list[str]:
    return [
        str(layout.kubernetes / "kubelet"),
        f"--config={layout.config('kubelet.json')}",
        f"--kubeconfig={layout.config('node.kubeconfig')}",
        f"--hostname-override={NODE}",
        f"--node-ip={layout.address}",
        f"--root-dir={layout.state}/kubelet",
        f"--cert-dir={layout.state}/kubelet/pki",
    ]


def proxy(layout: Layout) -> list[str]:
    return [str(layout.kubernetes / "kube-proxy"), f"--config={layout.config('proxy.json')}"]


def dns(layout: Layout) -> list[str]:
    return [str(layout.coredns / "coredns"), "-conf", str(layout.config("Corefile"))]


def containerd(layout: Layout) -> list[str]:
    return ["containerd", "--config", str(layout.config("containerd.toml"))]


def configuration(layout: Layout) -> dict[str, str]:
    """The files that those read, by name."""
    return {
        "kubelet.json": json.dumps(_kubelet(layout), indent=1),
        "proxy.json": json.dumps(_proxy(layout), indent=1),
        "cni/10-pods.conflist": json.dumps(_pod_network(layout), indent=1),
        "containerd.toml": _containerd(layout),
        "Corefile": _names(layout),
        "resolv.conf": f"nameserver {layout.address}\n",
    }


def _own_kubeconfigs(path: Path) -> list[str]:
    return [f"--{kind}={path}" for kind in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]


def _kubelet(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.address,
        "containerRuntimeEndpoint": f"unix://{layout.containerd}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.certificates}/ca.pem"},
        },
        "authorization": {"mode": "Webhook"},
        # The machine may lack the rights of a real node: for kernel settings, limits, the kernel's log.
        "featureGates": {"KubeletInUserNamespace": True},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "maxPods": MAX_PODS,
        "podPidsLimit": -1,
        "podLogsDir": f"{layout.state}/pods",
        "volumePluginDir": f"{layout.state}/volume-plugins",
        "maxOpenFiles": 20000,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "resolvConf": str(layout.config("resolv.conf")),
        "clusterDNS": [layout.address],
        "clusterDomain": DOMAIN,
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
    }


def _proxy(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.config("proxy.kubeconfig"))},
        "hostnameOverride": NODE,
        "mode": "iptables",
        "clusterCIDR": PODS,
        # Zero leaves the machine's own limits alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }


def _pod_network(layout: Layout) -> dict[str, Any]:
    """Each pod has a wire of its own to the node, which routes: that needs no bridge, nor its kernel module."""
    addresses = {
        "type": "host-local",
        "dataDir": f"{layout.state}/addresses",
        "ranges": [[{"subnet": PODS, "rangeStart": "10.244.0.10"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "ptp", "ipMasq": True, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}


def _names(layout: Layout) -> str:
    """The cluster's own names, and none else: nothing is asked of any other server."""
    zones = f"{DOMAIN} in-addr.arpa"
    kubernetes = f" kubernetes {zones} {{\n  kubeconfig {layout.config('dns.kubeconfig')} test\n }}\n"
    return f"{zones.replace(' ', ':53 ')}:53 {{\n bind {layout.address}\n errors\n{kubernetes} cache 5\n}}\n"


def _containerd(layout: Layout) -> str:
    unused = ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.aufs", "snapshotter.v1.devmapper")
    disabled = json.dumps([f"io.containerd.{name}" for name in (*unused, "internal.v1.opt")])
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{layout.state}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = {disabled}
[grpc]
  address = "{layout.containerd}"
  uid = {layout.user}
  gid = {layout.group}
[{cri}]
  restrict_oom_score_adj = true
  disable_apparmor = true
  sandbox_image = "{PAUSE_IMAGE}"
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{layout.config("cni")}"
  [{cri}.containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{cri}.containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
