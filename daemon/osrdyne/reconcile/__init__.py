"""Targets become plans, and plans become actions: the loops that declare queues and start worker groups.

`queue_rules` and `group_rules` say what to do next about one key; `queue_loop` and `group_loop` do it. Both stand on
`keyed_loop`, which runs at most one action at a time for each key. Here belongs no reading of messages, and no
engine: groups are started through the `Driver` that is handed in.
"""
