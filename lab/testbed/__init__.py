"""Starts, for tests, the real things that they need: a broker, a Docker engine, clean machines.

Everything started here ends with the test run, also when the run is killed. Nothing here is skipped when it
cannot start: that is an error, with its reason. Results of downloads and builds are cached outside the
checkout.

Beside them stand the peers that tests play with. As processes: `scripted_worker` does what a request says, in plain
pika; `library_worker` the same with our library; `minimal_worker` only answers, and is small enough for a thousand.
In the test's own process: `peer` is a worker whose every step a test decides, `foreign_client` a client in plain pika.
"""

from pathlib import Path

#: The root of this checkout.
ROOT = Path(__file__).resolve().parents[2]
