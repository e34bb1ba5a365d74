"""What is static in an environment, as Pulumi resources made from `osrdyne_pool.topology`.

Here belong: the stack's configuration, one component per file, and what a component must ask the broker first. Not
here: names, arguments and policies (the topology model has them), and anything that the daemon makes while it runs.

- Configuration: `configuration`, `cluster_settings`, `broker_settings`, `jobs_settings`, `relay_settings`, the
  `checks` of values, and `digests` of images.
- Before a change: `preflight` judges what is declared and what is `live`, and `lost_queues` finds lost queues.
  `management` speaks with the broker, and `guard` and `mend` ask it while Pulumi works. `errors` has every refusal.
- On the broker: `vhost`, `pool_objects`, `pool_users` and their `limits`, with `password` for passwords and `ordering`.
- On a database server: `jobs_database`, for a pool with jobs.
- On Kubernetes: `cluster`, `namespace`, and for each pool `pool_on_cluster`: `pool_config`, `worker_templates`,
  `daemon_deployment`, `redo_deployment` (`replicated` has what both are), `driver_access`, `keda_access`,
  `network_policies`.
- The relay there: `relay_on_cluster`: `relay_redis` and `relay_nodes`.
- A broker there: `broker_operator` or `broker_statefulset`, with `broker_credentials`.
- Operations: `monitoring`, `alerts`, `dashboard`.
- Programs of their own: `adopt` takes objects into a stack, and `hand_over` writes its outputs into files.
"""
