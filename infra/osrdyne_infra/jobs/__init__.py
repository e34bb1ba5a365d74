"""The jobs of a pool: their `settings`, their `database`, and the `redo_deployment`."""
