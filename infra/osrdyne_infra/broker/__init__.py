"""The broker: its virtual host, what is asked of it before a change, and a broker that the stack deploys.

`management` speaks with the broker, `live` and `lost_queues` read what is there. `vhost` is an object on it. A broker
of the stack, by its `settings`: `operator` or `statefulset`, with `credentials`.
"""
