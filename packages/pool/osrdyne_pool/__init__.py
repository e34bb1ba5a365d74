"""What a pool is: for the daemon, Pulumi, Ansible and everything that declares one or looks at one.

- `settings`, with `windows`: the settings of a pool; `settings_file` reads them from a file.
- `topology`: its exchanges, queues, policies and users, as values; `limits`: the limits of the broker that follow.
- `lint`: mistakes in a topology; `drift`: differences on a live broker; `differences`: their values.
- `broker`: what a live broker says of a pool, and the client of its management API.
- `images`: what is wrong in the name of a container image.

Pure code over the standard library; only `settings_file` and `broker.management` do I/O.
"""
