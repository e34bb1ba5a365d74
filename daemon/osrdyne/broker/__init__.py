"""All that the daemon does at RabbitMQ, by AMQP (`osrdyne_amqp`) and by the management API.

`publisher` publishes with confirm, `channel_pool` lends channels, `requeue` puts a message back behind the others,
`memory_limit` bounds what is in memory, `lifecycle_events` sends the daemon's own events. `management_api` asks,
`management_answers` reads what it says; `topology_watcher` and `static_queues` compare it with what should be there.
Here belongs no decision about keys.
"""
