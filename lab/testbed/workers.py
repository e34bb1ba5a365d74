"""The commands of the workers that tests start on a broker."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent

#: With our library.
LIBRARY = [sys.executable, str(_HERE / "library_worker.py")]
#: In plain pika.
SCRIPTED = [sys.executable, str(_HERE / "scripted_worker.py")]
#: Small enough for a thousand: it needs the standard library only, and starts fast.
MINIMAL = [sys.executable, "-I", "-S", "-E", str(_HERE / "minimal_worker.py")]
#: Does jobs of osrdyne_jobs.
JOBS = [sys.executable, str(_HERE / "job_worker.py")]
