"""Events as they come: a pool's stream by offsets, or files. Nothing here judges an event: see `judging`.

`reading` gives what `options` name, by the broker's `address`. `datasource` has Spark read the same, for queries of a
user. `stream` says what there is, and reads it by a `consumer`, which alone imports pika. `files` reads Parquet and
JSON lines, whose `values` are checked. `columns` makes Arrow batches, and `ranges` divides offsets.
"""
