"""The pipeline without an installed program: spark-submit runs this file, and `osrdyne-pipeline` is the old name.

Both take the words that follow `osrdyne pipeline`.
"""

from __future__ import annotations

import sys

from osrdyne_command import program
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_runtime.console.output import complain
from osrdyne_runtime.console.streams import guarded


def main() -> None:
    """Do what `osrdyne pipeline` does, and say that this is its name."""
    with guarded("osrdyne"):
        complain("`osrdyne-pipeline` is called `osrdyne pipeline` now; the next release has only that name")
        words = sys.argv[1:]
        program.app(words if words == ["--version"] else ["pipeline", *words], prog_name="osrdyne")


if __name__ == "__main__":
    program.run(PIPELINE, "osrdyne pipeline")
