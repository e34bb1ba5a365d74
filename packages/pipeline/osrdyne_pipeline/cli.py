"""The `osrdyne-pipeline` command: `ingest`, `tables`, `report`, `recommend`, `forget`, each with `--json`.

Reads arguments, starts Spark where it is needed, and turns every known error into one line that says what is wrong,
where, and what to do. Exit status: 0 done, 1 it could not be done, 2 a wrong argument. It is also what spark-submit
runs.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from osrdyne_pipeline.commands import forget, ingest, recommend, report, tables
from osrdyne_runtime.console.streams import guarded

_HELP = """Turn a pool's events into answers: who asks for what, what cold starts cost, what fails, which delays are
better.

The order is: ingest, tables, recommend, report. What was taken in wrongly is removed by forget. Works on this machine,
or on a Spark cluster (--master, or spark-submit). Every error is one line: what is wrong, where, and what to do.
"""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"osrdyne-pipeline {version('osrdyne-pipeline')}")
        except PackageNotFoundError:
            # From a zip that spark-submit was given.
            typer.echo("osrdyne-pipeline")
        raise typer.Exit


@app.callback(help=_HELP)
def osrdyne_pipeline(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


app.command("ingest")(ingest.command)
app.command("tables")(tables.command)
app.command("recommend")(recommend.command)
app.command("report")(report.command)
app.command("forget")(forget.command)


def main() -> None:
    """Run the command line."""
    with guarded("osrdyne-pipeline"):
        app()


if __name__ == "__main__":
    main()
