"""The commands of `osrdyne-pipeline`, one module each: `ingest`, `tables`, `report`, `recommend` and `forget`.

They share `options`, `output`, and `starting`, which starts Spark.
"""
