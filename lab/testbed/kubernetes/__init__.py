"""A real Kubernetes cluster of one node, for tests: `with Cluster() as cluster:` (cluster.py).

API server, controller manager, scheduler, kubelet, proxy, etcd, cluster DNS, and on demand metrics-server and KEDA
are built from the Go module proxy (building.py) and run real containers, by Debian's containerd. Everything that runs
has process, mount and network namespaces of its own (keeper.py, node.py): when they end, nothing is left on the
machine, and several clusters at once do not meet. That network has no way out but to this machine.

Nothing here knows of drivers or brokers.
"""
