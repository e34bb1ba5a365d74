"""The base of all packages of the daemon. Nothing here knows pools, queues or workers.

`changes` waits for changes, `credentials` reads the addresses that hold a password, and `republish` says with which
properties a message is published once more.
"""
