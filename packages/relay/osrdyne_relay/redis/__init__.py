"""The state of the relay in Redis, and the connections to it.

`transactions` has every change, `names` the keys and `records` their values: these are pure. `retrying` executes
transactions over the `port` that `client` implements, and `pulse_receiver` receives pulses. `connections` opens
connections, and `wire` parses what arrives on one. `server` describes a Redis for nodes.
"""
