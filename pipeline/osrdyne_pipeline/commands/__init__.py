"""The commands of `osrdyne-pipeline`, one module each: `ingest`, `tables`, `report` and `recommend`.

They share `options`, `output`, and `starting`, which starts Spark.
"""
