"""The daemon's settings: `daemon` has all tables but the driver's, which stands beside each driver.

`credentials` reads the addresses that hold a password, `file` notices changes of the settings file, `model` is what
tables are made of. The settings of a pool are `osrdyne_protocol.settings`. Here belongs what parses and checks;
nothing here opens a connection.
"""
