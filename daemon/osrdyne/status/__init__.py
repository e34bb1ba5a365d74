"""The daemon's status: the state of each key (`view`), `metrics`, and the `server` of both.

Modules here only read the state.
"""
