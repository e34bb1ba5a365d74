"""The commands of the daemon's package, a module or a package each: parse, ask, print.

`daemon`, `call`, `status`, `lint`, `replay`, `pool`, `new`, `dev` and `poison`; `pyproject.toml` registers what is
described here. Beside them: `new_pool` has the files that `new` writes, `status_table` draws the table, `lost_queues`
checks the rule `lost`. Only commands use the modules here.
`osrdyne_runtime.console` has what commands of all packages share.
"""

from osrdyne_command.group import Command, group

DAEMON = Command("osrdyne.commands.daemon:command", "Run the daemon of one pool.")
CALL = Command("osrdyne.commands.call:command", "Send one request to the workers of a key and print the answer.")
STATUS = Command("osrdyne.commands.status:command", "Show what the daemon does, and each key. Run it first.")
NEW = Command("osrdyne.commands.new:command", "Write worker, test, client and settings of a pool into a new folder.")
DEV = Command("osrdyne.commands.dev.command:command", "Run a pool while its worker is written; restart it on changes.")
LINT = Command("osrdyne.commands.lint:command", "Find mistakes in a topology that lose messages later.")
REPLAY = Command("osrdyne.commands.replay.command:command", "Write what a pool would have recorded of these calls.")
_POOL = "osrdyne.commands.pool.command"
POOL = group(
    "Compare the objects of a pool on its broker with the settings, make them, or remove them.",
    {
        "diff": Command(f"{_POOL}:diff", "Show what apply would change, value for value."),
        "apply": Command(f"{_POOL}:apply", "Make the broker have the pool as declared."),
        "remove": Command(f"{_POOL}:remove", "Delete what the pool has on the broker."),
    },
)
_POISON = "osrdyne.commands.poison.command"
POISON = group(
    """List, show, replay and bury requests in the poison inventory: those that workers failed on too often, and
those that could not be served and have no caller to answer.

Exit status 1: an entry was not found, or had to stay.""",
    {
        "list": Command(f"{_POISON}:list_", "List the entries, each oldest first."),
        "show": Command(f"{_POISON}:show", "Show one entry, with its headers and its body."),
        "replay": Command(f"{_POISON}:replay", "Send entries to their workers again, and remove them."),
        "bury": Command(f"{_POISON}:bury", "Remove entries for good."),
    },
)
