"""`osrdyne pipeline`: `ingest`, `tables`, `recommend`, `report`, `run`, `bill` and `forget`, one module each.

They share `options`, `output`, and `starting`, which starts Spark.
"""

from osrdyne_command.group import Command, group

_HERE = "osrdyne_pipeline.commands"

PIPELINE = group(
    """Turn a pool's events into answers: who asks for what, what cold starts cost, what fails, which delays are
better.

The order is: ingest, tables, recommend, report; run does all four. What was taken in wrongly is removed by forget.
Works on this machine, or on a Spark cluster (--master, or spark-submit).""",
    {
        "ingest": Command(f"{_HERE}.ingest:command", "Bring events into the lake, from the stream or from files."),
        "tables": Command(f"{_HERE}.tables:command", "Make the tables of the pool's events."),
        "recommend": Command(f"{_HERE}.recommend:command", "Find better delays, with evidence."),
        "report": Command(f"{_HERE}.report:command", "Write the results as one HTML page."),
        "run": Command(f"{_HERE}.run:command", "Do all of these, as a timer does: ingest, tables, recommend, report."),
        "bill": Command(f"{_HERE}.bill:command", "Show who used the workers, and what that costs."),
        "forget": Command(f"{_HERE}.forget:command", "Remove events that were taken in wrongly."),
    },
)
