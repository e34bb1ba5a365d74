"""The questions, one module each: gold tables from silver ones. Pure: frames in, one frame out, of the table's schema.

Counts and times are integers, so that the parts of a sum give the sum. A percentile is the nearest rank: a value that
occurred.
"""
