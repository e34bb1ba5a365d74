"""The jobs of a pool: their `settings`, and the `redo_deployment`."""
