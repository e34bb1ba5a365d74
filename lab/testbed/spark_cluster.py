"""A standalone Spark cluster on loopback: a master and two workers of one core each, as processes of their own.

It runs what PyPI's pyspark brings. `with SparkCluster() as cluster:` starts it and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from pathlib import Path

from testbed.ports import PortBlock
from testbed.waiting import until

BIN = Path(sys.executable).parent
#: What its scripts else look for with whichever Python comes first on PATH.
SPARK = Path(sysconfig.get_path("purelib"), "pyspark")
WORKERS = 2
#: Options of a JVM that works on a few rows: they repay neither the second compiler nor a collector beside the work.
FEW_ROWS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Memory of an executor: little more than Spark's least.
EXECUTOR_MEMORY = "512m"


class SparkCluster:
    """`master` is its address, for `--master`; `folder` is for whatever needs a place while it runs."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="osrdyne-spark-"))
        self._ports = PortBlock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{self._ports.first}"

    @property
    def environment(self) -> dict[str, str]:
        """What its processes need, and programs that submit to it: loopback only, and files in its folder."""
        others = ("SPARK_", "PYSPARK_", "OSRDYNE_PIPELINE_")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(others)},
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "JDK_JAVA_OPTIONS": FEW_ROWS,
            "TMPDIR": str(self.folder),
        }

    def __enter__(self) -> SparkCluster:
        try:
            first = self._ports.first
            self._start("master.Master", "--port", str(first), "--webui-port", str(first + 1))
            for number in range(WORKERS):
                port = first + 2 + 2 * number
                ports = ["--port", str(port), "--webui-port", str(port + 1)]
                size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}")]
                self._start("worker.Worker", *ports, *size, self.master)
            until(lambda: self._alive() == WORKERS, every=0.3, what=f"workers; {self.logs()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            # One that could not start has ended, and that error is the one to report.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._ports.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> str:
        """The end of what each process said."""
        return "\n".join(file.read_text(errors="replace")[-1500:] for file in sorted(self.folder.glob("*.log")))

    def _start(self, what: str, *arguments: str) -> None:
        command = [str(BIN / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1", *arguments]
        with (self.folder / f"{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        self._processes.append(process)

    def _alive(self) -> int:
        ended = [process.args for process in self._processes if process.poll() is not None]
        assert not ended, f"{ended} ended: {self.logs()}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self._ports.first + 1}/json/", timeout=10) as answer:
                return int(json.loads(answer.read())["aliveworkers"])
        except OSError:
            return 0
