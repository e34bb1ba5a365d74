"""What tasks stand on: waiting for changes (`changes`), pauses after failures (`back_off`), and `log_format`.

Here belongs nothing that knows pools, queues or workers.
"""
