"""The contract that every part of osrdyne imports, and that a peer in another language can read.

On the wire: `names` of broker objects, `keys`, `headers`, `statuses`, `expiry` (where a request expired), activity
`events` and their `event_batches`, `durations`, and the `worker_environment`. `foreign_json` reads the JSON of others.
`errors` has what these raise.

Only pure code over the standard library belongs here: no I/O and no third-party import. `events` reads the wall clock
and draws random numbers.
"""
