"""`osrdyne jobs`: look at jobs, and change them by hand.

`looking` has `list`, `show` and `schemas`, `changing` has `cancel` and `delete`, and what `redo` does with ids.
`create`, `redo`, `migrate`, `prepare_database`, `restored` and `serve` have a module each. `options` declares what
several take, `database` opens the database that they name, `types` loads types of jobs, `text` prints for a person.
"""

from osrdyne_command.group import Command, group

_HERE = "osrdyne_jobs.commands"

JOBS = group(
    """Register, list, show, repeat, cancel and delete jobs, and run the process that finds what was missed.

Exit status 1: an unknown job, a state that does not allow it, or a payload that does not fit.""",
    {
        "create": Command(f"{_HERE}.create:command", "Register a job."),
        "list": Command(f"{_HERE}.looking:list_", "List jobs in the order of their ids, a page at a time."),
        "show": Command(f"{_HERE}.looking:show", "Show one job, with its payload and its runs."),
        "redo": Command(f"{_HERE}.redo:command", "Do jobs again: those named, or all that were missed."),
        "cancel": Command(f"{_HERE}.changing:cancel", "Cancel jobs."),
        "delete": Command(f"{_HERE}.changing:delete", "Delete jobs with their runs."),
        "schemas": Command(f"{_HERE}.looking:schemas", "Show the types of jobs, with the schemas of their payloads."),
        "migrate": Command(f"{_HERE}.migrate:command", "Make the tables of jobs, or bring them to this version."),
        "prepare-database": Command(f"{_HERE}.prepare_database:command", "Make the database, its users and rights."),
        "restored": Command(f"{_HERE}.restored:command", "Have a database that was restored give no id again."),
        "serve": Command(f"{_HERE}.serve:command", "Serve the administration over HTTP: API, page and metrics."),
    },
)
