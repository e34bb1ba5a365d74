"""From a pool's event stream to better settings, on Spark. Of our packages, it knows only `osrdyne_protocol`.

Read: `source` is Spark's data source, `judging` decides what is an event, and `ingest` writes it in `batches`, of which
`forgetting` takes some out. Keep: `lake` has the tables, `places` says where one may be, `schemas` says what is in
each, and `tables` makes them: `silver` ones, then those of `questions`. Use: `recommendation` finds better delays, and
`report` makes a page. `cli` and `commands` are the command, `session` starts Spark, and `errors` has what commands
show.
"""
