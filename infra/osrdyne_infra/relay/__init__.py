"""The relay `on_cluster`: its `settings`, its `redis` and its `nodes`."""
