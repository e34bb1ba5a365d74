"""Faults on a real broker under load: every confirmed request is accounted for at the end.

`python -m faults` is the runner; `docs/explain/faults.md` says what it does and how to read it. What belongs here: the
load, the faults, the accounting. What does not: engines that other tests use too (`testbed`).
`jobs` does the same for jobs, on a PostgreSQL.
"""
