"""From a pool's event stream to better settings. Of our packages, it knows only `osrdyne_protocol`.

Read: `source` gives events, `judging` decides what is one, and `ingest` writes it in `batches`, of which `forgetting`
takes some out. Keep: `lake` has the tables in a folder and `store` in an object store, `places` says where one may be,
`schemas` says what is in each, and `tables` makes them: by the `small` engine, or by `spark`, which has `silver` and
`questions` for it; `slices` says what of them is made again. Use: `recommendation` finds better delays, `promises`
compares what they promised with what came, and `report` makes a page. `cli` and `commands` are the command, `session`
starts Spark, and `errors` has what commands show.
"""
