"""Commands of this machine."""

from __future__ import annotations

import subprocess


def command(*words: str) -> None:
    """Run it; raise RuntimeError with what it said when it fails."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
