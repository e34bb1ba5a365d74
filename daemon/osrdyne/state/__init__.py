"""The state that the tasks share: what is known, and what is wanted. Nothing here acts.

`pool` has all of it. `tracker` decides which keys are wanted, under which generation, and until when. `by_key` is what
is known of queues, groups and workers, `counts` what the broker counted, and `lost_queues` which queues it lost.
`values` are what these hold of a key, and `signs` whether its queue has a consumer. `delivery_history` knows which
workers received a request, `worker_ends` how workers ended, and `start_failures` when requests are refused because none
can be started.
"""
