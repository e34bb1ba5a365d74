"""The base of all tasks: waiting for changes (`changes`).

Nothing here knows pools, queues or workers.
"""
