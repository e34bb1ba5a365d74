"""What is static in an environment, as Pulumi resources made from `osrdyne_pool.topology`.

Here belong: the stack's configuration, one component per file, and what a component must ask the broker first. Not
here: names, arguments and policies (the topology model has them), and anything that the daemon makes while it runs.

- Configuration: `configuration`, of the settings in each folder, the `checks` of values, and `digests` of images.
- Before a change: `preflight` judges what is declared and what is there. `errors` has every refusal.
- `broker`, `pool`, `jobs`, `relay`, `cluster` and `monitoring`: what Pulumi makes, by what it is for. `password` makes
  passwords, and `ordering` says in which order resources are made and deleted.
- Programs of their own: `adopt` takes objects into a stack, and `hand_over` writes its outputs into files.
"""
