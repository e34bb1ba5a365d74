"""Facts become targets: which keys are wanted, under which generation, and until when.

`tracker` decides, `clock` lets time pass, `warmer` keeps keys active through the windows of `window_rules`. Nothing
here knows queues, groups or the broker.
"""
