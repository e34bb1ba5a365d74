"""The daemon's settings: `daemon` has all tables but the driver's, which is in `drivers`.

`file` watches the file and notices changes. The settings of a pool are `osrdyne_protocol.settings`. Here belongs what
parses and checks; nothing here opens a connection.
"""
