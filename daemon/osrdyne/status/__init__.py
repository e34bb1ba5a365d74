"""What the daemon shows of itself: the state of each key (`view`), `metrics`, and the `server` of both.

Here belongs what only reads the state.
"""
