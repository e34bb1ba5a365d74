"""What a program declares: components that take names and options, and have guards, preflight and order inside.

`arguments` makes their settings. `broker` and `pool` are on a broker that is there; `cluster` reaches a Kubernetes
cluster, for pools, for `relay`, and for a `deployed_broker`. `osrdyne_infra.jobs_database` has the database of jobs.
"""
