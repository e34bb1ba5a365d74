"""The contract that every part of osrdyne imports, and that a peer in another language can read.

On the wire: `names` of broker objects, `keys`, `headers`, `statuses`, `expiry` (where a request expired), activity
`events` and their `event_batches`, and the `worker_environment`. `foreign_json` reads the JSON of others, and
`addresses` and `images` say what is wrong in an address and in the name of a container image. A pool's
`settings`, with `durations` and `windows`. `settings_text` writes a settings file. `certificates` gives TLS a
program's own certificate, and `certificate_faults` says what is wrong with that of a server. `broker` is the topology,
with its linter and its form in the management API. `log_lines` says how a library logs. `errors` has what these raise.
`hosts` knows which machine an address means.
`door` bounds what strangers have of a server. `forks` finds out that something was opened in another process.

Only pure code over the standard library belongs here: no I/O and no third-party import. Exceptions: `settings_file`
reads settings, `certificates` has PEM files read, `console` is how all commands print, and `program` is the process of
a long-running one: its signals, its forks, its end. `events` reads the wall clock, and draws random
numbers. `forks` asks which process this is.
"""
