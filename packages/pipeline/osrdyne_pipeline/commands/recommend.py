"""`osrdyne pipeline recommend`: which delays would be better, with evidence, as a change that a person reviews."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.starting import AUTO, started
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.recommendation import advice, text
from osrdyne_pipeline.recommendation.edit import change
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_pipeline.tables import shown
from osrdyne_runtime.console.output import print_json

#: In the folder of the pool: what was recommended last, for the report.
FILE = "recommendation.json"


def _goal(word: str) -> str:
    if word not in advice.GOALS:
        raise typer.BadParameter(f"{word!r} is neither {' nor '.join(advice.GOALS)}")
    return word


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    stack: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Pulumi.STACK.yaml to change; shown as a diff."),
    ] = None,
    ansible: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Ansible variables to change; shown as a diff."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the changes into those files, too.")] = False,
    unbind_delay: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Today's delay until unbound.")] = 600.0,
    stop_delay: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Today's delay until stopped.")] = 600.0,
    goal: Annotated[
        str,
        typer.Option(
            callback=_goal,
            metavar="cold|hours",
            help="cold: fewest cold starts at today's worker-hours; hours: the other way round.",
        ),
    ] = "cold",
    engine: options.Engine = AUTO,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Find better delays, and say how they do on days that they were not made from.

    Nothing is recommended where the history does not support it. Files are changed with --write only.
    """
    place = lake_at(lake, pool)
    if not place.exists("silver/requests"):
        raise LakeError(f"there are no tables of {pool} in {place.where}: osrdyne pipeline tables makes them")
    place.check_writable()
    ask = advice.AdviceRequest(unbind=unbind_delay, stop=stop_delay, goal=goal)
    with started("recommend", place, engine=engine, master=master, memory=memory) as session, Steps() as steps:
        steps("replaying the calls")
        found = advice.recommend(shown(session, place, "silver/requests", "gold/starts", "gold/key_classes"), ask, pool)
    document = found.to_json()
    place.write_file(FILE, json_text.dumps(document))
    makers = ((stack, change.pulumi), (ansible, change.ansible))
    changes = [make(found, file) for file, make in makers if file is not None] if found.recommended else []
    for edit in changes if write else ():
        edit.write()
    if json:
        files = [{"file": str(edit.path), "diff": edit.diff(), "written": write} for edit in changes]
        print_json({**document, "changes": files})
        return
    typer.echo(text.render(found))
    for edit in changes:
        typer.echo(f"written: {edit.path}" if write else edit.diff())
