"""`osrdyne relay`: run a node, and make what it and its Redis need.

Each command has a module: `serve` runs a node, `token` makes a token, `check` looks at the files of a node, and `redis`
prints what its Redis needs.
"""

from osrdyne_command.group import Command, group

RELAY = group(
    "Run a node of the relay, to which workers that can only poll and their callers connect over HTTPS.",
    {
        "serve": Command("osrdyne_relay.commands.serve:command", "Serve a node: workers poll here, and programs call."),
        "token": Command("osrdyne_relay.commands.token:command", "Make a token for a client."),
        "check": Command("osrdyne_relay.commands.check:command", "Read the files of a node, and start nothing."),
        "redis": Command("osrdyne_relay.commands.redis:command", "Print what the Redis of a relay needs."),
    },
)
