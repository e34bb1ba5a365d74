"""What every program of osrdyne needs, and nothing of RabbitMQ. Only `serve` and `settings.model` need more than the
standard library.

- `retry`, `outages`: how long to wait before the next try, and what is logged meanwhile.
- `program`, `forks`, `console`: the process, which process this is, and how all commands print.
- `portal` hands work from threads to a loop, and runs one in a thread of its own for them.
- `log_lines`: how a library logs. `settings_text` writes a settings file.
- `settings`: the one reader of secrets, the strict model of tables of settings, and the one line about what is wrong.
- `addresses`, `hosts`: what is wrong in an address, and which machine it means.
- `certificates`, `certificate_faults`: a program's own certificate, and what is wrong with that of a server.
- `door`: what strangers may have of a server. `serve`: what serves over HTTP stands on.
"""
