"""`osrdyne bus`: look at a bus and its servers.

Each command has a module: `ping` asks servers once, and `watch` goes on asking. `asking` is what both do, and `options`
where they connect to.
"""

from osrdyne_command.group import Command, group

BUS = group(
    "Look at a bus over AMQP 1.0, and at its servers.",
    {
        "ping": Command("osrdyne_bus.commands.ping:command", "Ask whether the bus and its servers answer."),
        "watch": Command("osrdyne_bus.commands.watch:command", "Ask the same again and again, until Ctrl-C."),
    },
)
