"""What osrdyne costs, next to what others cost: `make bench` (docs/benchmarks.md says how to read it).

A measurement is a module with `measure(rig)`, which returns rows; `__main__` runs them on one broker of their own.
`sides/` has the programs that are measured, ours and the peers', each a process; `ratios` is the arithmetic.
Speed is shown here and asserted nowhere.
"""
