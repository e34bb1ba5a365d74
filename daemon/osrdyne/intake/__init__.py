"""Messages become facts: orphans, activity events, and what the management API says of queues.

`orphan_forwarder` forwards or refuses orphans by `orphan_rules` and `wake_rules`, within `hold_limits`.
`activity_listener` renews keys by `activity_rules`, once for each burst of events (`bursts`);
`activity_feed` brings it the events. `queue_watcher` samples the request queues. `taking_back` makes orphans of
requests whose workers cannot be started. Modules here read messages or samples. Package `reconcile` acts on queues and
groups.
"""
