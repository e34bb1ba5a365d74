"""The commands of `osrdyne`, a module or a package each: parse, ask, print.

`daemon`, `call`, `status`, `lint`, `replay` and `poison`. Beside them: `broker_address` finds the address that a
command was given, `output` prints and words errors, `status_table` draws the table, `lost_queues` asks for the rule
`lost`. Here belongs what only a command uses.
"""
