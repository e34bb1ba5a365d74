"""The commands of `osrdyne`, a module or a package each: parse, ask, print.

`daemon`, `call`, `status`, `lint`, `replay` and `poison`. `app` is the command line, which loads the command that runs.
Beside them: `output` says which errors are one line, `status_table` draws the table, `lost_queues` checks the rule
`lost`. Only commands use the modules here. `osrdyne_runtime.console` has what commands of all packages share.
"""
