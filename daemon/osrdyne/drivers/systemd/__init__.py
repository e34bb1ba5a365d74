"""The systemd driver: one instance of a template unit a group.

`driver` starts and stops groups by its `settings`; `groups` has their records. Only `bus` knows the D-Bus library;
`manager` has systemd's calls, `environment` the files that units read, `template` what a unit is made of, `journald`
reads a worker's output. `watching` keeps what is known of each unit. `snapshot` decides what an observation means, and
is pure.
"""
