"""The daemon's status: the state of each key (`view`), and the `server` of it and of the metrics.

Modules here only read the state.
"""
