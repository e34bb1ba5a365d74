"""What is static in an environment, as Pulumi resources made from `osrdyne_pool.topology`.

Here belong: the stack's configuration, one component per file, and what a component must ask the broker first. Not
here: names, arguments and policies (the topology model has them), and anything that the daemon makes while it runs.

- Configuration: `configuration`, of the settings in each folder, and the `checks` of values.
- Before a change: `preflight` judges what is declared and what is there. `errors` has every refusal.
- `broker`, `pool`, `jobs`, `relay`, `cluster` and `monitoring`: what Pulumi makes, by what it is for. `ordering` says
  in which order resources are made and deleted.
- Resources of our own: `guard` and `mend` ask the broker while Pulumi works, `limits` are set there, `jobs_database` is
  on a database server, and `password` makes passwords. The state of a stack names their classes by these modules: so
  these stay where they are.
- Programs of their own: `adopt` takes objects into a stack, and `hand_over` writes its outputs into files.
"""
