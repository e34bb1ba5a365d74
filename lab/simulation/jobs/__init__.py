"""Simulates jobs in virtual time: the real client, worker and redo over a real SQLite; `python -m simulation.jobs`.

`scheduler` runs processes step by step; `threads` and `database` put the product's code on it. `scenario` has what a
seed decides, `broker` the pool, `programs` and `handlers` what the processes do, `world` one run of it all. After each
commit, `observer` reads the database, and `watch` checks it by `commit_rules`. `checker` checks the end. `planted` has
mistakes that both must find, and `runner` runs many seeds.
"""
