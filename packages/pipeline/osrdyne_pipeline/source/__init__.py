"""Events as they come: a pool's stream by offsets, or files. Nothing here judges an event: see `judging`.

`datasource` is what Spark sees, and `reading` does its work, for the small engine, too. They have `options` and the
broker's `address`. `stream` says what there is, and reads it by a `consumer`, which alone imports pika. `files` reads
Parquet and JSON lines, whose `values` are checked. `columns` makes Arrow batches, and `ranges` divides offsets.
"""
