"""The daemon's access to RabbitMQ, by AMQP (`osrdyne_amqp`) and by the management API.

`publisher` publishes with confirm, `channel_pool` lends channels, `queue_feed` consumes one of the pool's own queues,
`memory_limit` bounds the bytes in memory, `lifecycle_events` sends the daemon's own events. `management_api` queries
the API; `topology_watcher` and `static_queues` compare its answers with the declared topology. Nothing here decides on
keys.
"""
