"""The questions that the pipeline answers, a module each: a pure function makes a gold table from silver tables.

`demand`, `latency`, `cold_starts`, `worker_hours`, `failures`, `causes`, `bill`, `forecast` and `key_classes` are the
questions; several of them use `percentiles`. Counts and times are integers, so that sums do not depend on their order.
A percentile is the nearest rank: a value that occurred.
"""
