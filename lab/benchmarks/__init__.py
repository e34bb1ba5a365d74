"""What osrdyne costs, next to what others cost: `make bench` (docs/explain/benchmarks.md says how to read it).

A measurement is a module with `measure(rig)`, which returns rows; `__main__` runs them on one broker of their own.
`sides/` has the programs that are measured, ours and the peers', each a process; `ratios` is the arithmetic.
`python -m benchmarks.drivers` is a program of its own: it measures a driver on its engine, and `engines` has what
differs from engine to engine. `python -m benchmarks.policies` is another: it judges the advice of the pipeline, and
`policies` has all of it. Speed is shown here and asserted nowhere.
"""
