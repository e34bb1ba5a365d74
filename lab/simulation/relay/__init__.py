"""Simulates the relay in virtual time: real nodes over a model of Redis; `python -m simulation.relay`.

`model` is Redis, compared with the real one by a test. `connection` is how a process reaches it, with what may go wrong
on the way. `scenario` has what a seed decides, `processes` what callers and workers do, `world` one run of it all.
`checker` judges it, `planted` has mistakes that it must find, and `runner` runs many seeds.
"""
