"""Faults on real jobs: a PostgreSQL, a broker, a daemon with workers, redo processes and a client, and an account.

`python -m faults.jobs` is the runner; `docs/explain/faults.md` says how to read it. `load` has the jobs, `client` and
`worker` are the programs that register and do them. `processes` starts all, `kinds` has the faults, `run` injects them
one after the other, and `account` says at the end what became of every job.
"""
