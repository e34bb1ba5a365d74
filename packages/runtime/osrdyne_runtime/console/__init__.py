"""What the commands of all packages do alike: the same options, lines and exit statuses.

`output` prints results and errors, `streams` guards what they are written to, `log_format` sets up the lines of a log,
`broker_address` finds the address of the broker, and `init` makes a command the init of its container. These read and
write. `imports` is how commands import what they need.
Parsing a command line is left to the commands.
"""
