"""Runs a RabbitMQ that lives in a Debian root file system of its own, beside whatever the machine carries.

`rootfs` makes the root file system once; every instance shares it, read-only. An `instance` is a directory
with its configuration, data, log and secrets; `plugins` says which plugins it runs. A `process` is the
broker at work, in private mount and process namespaces: when it ends, however it ends, no mount and no
process stays. `cli` has the verbs.

Nothing here needs more than Python's standard library, because Ansible copies it to bare machines.
"""
