"""The Kubernetes cluster: its `settings`, the `access` to it, and what pods there have in common.

`live` is what a cluster says before a preview. `namespace`, `network_policies`, `replicated` for pods that stand in for
each other, and `digests` of images.
"""
