"""The base of all tasks: waiting for changes (`changes`), and pauses after failures (`back_off`).

Nothing here knows pools, queues or workers.
"""
