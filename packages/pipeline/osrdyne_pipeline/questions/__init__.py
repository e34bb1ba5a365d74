"""The questions, one module each: gold tables from silver ones. Pure: frames in, one frame out, of the table's schema.

`demand`, `latency`, `cold_starts`, `worker_hours`, `failures`, `forecast` and `key_classes` are the questions;
`percentiles` is what several of them need. Counts and times are integers, so that the parts of a sum give the sum. A
percentile is the nearest rank: a value that occurred.
"""
