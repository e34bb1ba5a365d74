"""The systemd driver, and its parts: a bus, the verbs of systemd's manager, environment files, what signals mean.

`bus` alone knows the D-Bus library, `manager` what systemd offers on it, `environment` the files that units read,
`template` what a unit is made of, `journald` where a worker's words are. `snapshot` decides what an observation means,
and does nothing.
"""
