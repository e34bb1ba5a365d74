"""The daemon's driver `relay`: the workers of a key are those that poll as `{pool}/{key}`.

The daemon can start no such worker. What this driver starts is the forwarding of one key: requests go from the key's
request queue over the relay, and each is acknowledged when its answer was confirmed. While no worker polls, requests
wait in the queue, and expire there.

`driver` has the contract of `osrdyne.drivers.base`, `forwarding` one key, `translation` what a request of a pool is on
the relay, and what a response is in the pool. `settings` is what the entry point of the package names.
"""
