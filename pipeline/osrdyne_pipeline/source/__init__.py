"""Events as Spark reads them: a pool's stream by offsets, or files. `datasource` is what Spark sees, `stream` alone
imports pika, `files` reads Parquet and JSON lines, `columns` makes Arrow batches, `ranges` decides who reads what.
Nothing here judges an event: see judging.
"""
