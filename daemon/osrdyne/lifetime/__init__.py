"""Facts become targets: for how long keys are wanted.

`clock` lets time pass for the tracker, and `warmer` keeps keys active through the windows of `window_rules`. Nothing
here knows queues, groups or the broker.
"""
