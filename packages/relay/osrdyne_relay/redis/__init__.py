"""The state of the relay in Redis, and the connections to it.

`transactions` has every change, `names` the keys and `records` what is in them: these are pure. `retrying` executes
transactions over the `port` that `client` implements, and `pulses` receives. `connections` opens connections, and
`wire` is what goes over one. `server` describes a Redis for nodes.
"""
