"""From a pool's event stream to better settings, on Spark: read (source/), transform (tables/, questions/), recommend
(recommendation/), write (files.py, report/). Knows of ours only osrdyne_protocol.
"""
