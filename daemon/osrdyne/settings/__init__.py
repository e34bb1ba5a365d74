"""The daemon's settings: `daemon` has all tables except the driver's, which is in each driver's package.

`environment` reads settings in variables, and `file` notices changes of the settings file. The settings of a pool are
`osrdyne_pool.settings`. Modules here parse and check; none opens a connection.
"""
