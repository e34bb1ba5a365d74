"""One pool: `objects` and `users` on the broker, and what it has `on_cluster`.

There it has `config`, `worker_templates`, `daemon_deployment`, `driver_access` and `keda_access`.
"""
