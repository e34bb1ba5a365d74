"""The base of all tasks: waiting for changes (`changes`), pauses after failures (`back_off`), and `log_format`.

Nothing here knows pools, queues or workers.
"""
