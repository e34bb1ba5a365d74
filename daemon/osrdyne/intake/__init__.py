"""Messages become facts: orphans, activity events, and what the management API says of queues.

`orphan_forwarder` forwards or refuses orphans by `orphan_rules`, within `hold_limits`. `activity_listener` renews keys
by `activity_rules`, one event of each of the `bursts`, and keeps the `delivery_history`. `queue_watcher` samples the
request queues. Here belongs what reads a message or a sample. What follows from it for queues and groups is
`reconcile`'s.
"""
