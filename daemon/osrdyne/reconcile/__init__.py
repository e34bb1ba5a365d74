"""Targets become plans, and plans become actions: the loops that declare queues and start worker groups.

`queue_rules` and `group_rules` decide the next step for one key. `queue_loop` and `group_loop` act. Both use
`keyed_loop`, which runs at most one action at a time for each key. `turns` bounds how many groups are started and
exchanged at once. Nothing here reads messages or knows an engine: groups are started through the `Driver` that the
session passes in.
"""
