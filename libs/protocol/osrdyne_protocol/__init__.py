"""The contract that every part of osrdyne imports, and that a peer in another language can read.

Names of broker objects, the key codec, header names, statuses, activity events, the worker's environment, pool
settings, and the topology model with its linter and its form in the management API. Only pure code over the standard
library belongs here: no I/O, no clock, no third-party import.
"""
