"""The systemd driver: each group is an instance of a template unit.

`driver` starts and stops groups by its `settings`; `groups` has their records. Only `bus` knows the D-Bus library.
`manager` calls systemd, `environment` writes the files that units read, `template` reads the template unit, and
`journald` reads a worker's output. `unit_watch` keeps the last observation of each unit; `snapshot` decides,
purely, what an observation means.
"""
