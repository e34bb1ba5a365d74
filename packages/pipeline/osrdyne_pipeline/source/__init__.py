"""Events as Spark reads them: a pool's stream by offsets, or files. Nothing here judges an event: see `judging`.

`datasource` is what Spark sees, with its `options` and the broker's `address`. `stream` says what there is, and
reads it by a `consumer`, which alone imports pika. `files` reads Parquet and JSON lines, whose
`values` are checked. `columns` makes Arrow batches, and `ranges` divides offsets among readers.
"""
