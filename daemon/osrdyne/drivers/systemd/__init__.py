"""The systemd driver: one instance of a template unit a group.

`driver` starts and stops groups by its `settings`, over the `groups` that have an environment file. `bus` alone knows
the D-Bus library, `manager` what systemd offers on it, `environment` the files that units read, `template` what a
unit is made of, `journald` where a worker's output is. `watching` keeps what is known of each unit. `snapshot`
decides what an observation means, and does nothing.
"""
