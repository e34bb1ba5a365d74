"""A real browser without a window: Chromium, spoken to over a pipe in its DevTools protocol.

Where the machine has none, apt installs it, and a line says so. Its options let it resolve no name and use no network
but loopback. `with Browser() as browser:` starts it (half a second) and leaves nothing behind.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from testbed import apt
from testbed.suite import only_in_test_all

#: The commands that will do, in the order in which they are looked for.
COMMANDS = ("chromium-headless-shell", "chromium", "google-chrome-stable", "google-chrome")
#: What apt installs where there is none of them: the smallest, and a font, without which no text has a size.
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
#: Seconds to wait for what must happen.
PATIENCE_SECONDS = 60.0

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--proxy-server=http://127.0.0.1:9",
    "--remote-debugging-pipe",
)
#: Puts the two ends of pipes where Chromium looks for them, 3 and 4, and becomes Chromium.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class BrowserFailed(RuntimeError):
    """There is no browser, or it did not do what it should; the text says why."""


def command() -> str:
    """Return the browser's command, installed by apt where there is none."""
    only_in_test_all("a browser")
    found = next(filter(None, map(shutil.which, COMMANDS)), None)
    if found is None:
        try:
            apt.install(*PACKAGES, why=f"a browser; one of {', '.join(COMMANDS)} would do")
        except apt.NotInstalled as error:
            raise BrowserFailed(str(error)) from error
        found = next(filter(None, map(shutil.which, COMMANDS)), None)
        if found is None:
            raise BrowserFailed(f"{PACKAGES[0]} brought no browser; install one of {', '.join(COMMANDS)} by hand")
    return found


class Browser:
    """One browser with one page. `problems` are errors on the page's console; `requests` what it asked for."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="osrdyne-browser-"))
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        self._seen: list[dict[str, Any]] = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        try:
            with (self._folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), command()),
                        *(*_OPTIONS, f"--user-data-dir={self._folder}/profile", "about:blank"),
                    ],
                    pass_fds=(theirs_in, theirs_out),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "HOME": str(self._folder), "TMPDIR": str(self._folder)},
                    start_new_session=True,
                )
        except BaseException:
            self._remove()
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def __enter__(self) -> Browser:
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        with contextlib.suppress(BrowserFailed, OSError):
            self.ask("Browser.close")
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._remove()

    def visit(self, page: Path | str, *, dark: bool = False, width: int = 1280) -> None:
        """Show a file or a URL in a window of that width, in the light or the dark scheme; wait until it is loaded."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        # What the page before has still to say was read by now.
        self.problems, self.requests, self._seen = [], [], []
        self.ask("Page.navigate", url=page.absolute().as_uri() if isinstance(page, Path) else page)
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserFailed(f"{script[:200]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """Write a picture (PNG) of the whole page."""
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command of the protocol; return its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda found: found.get("id") == number)
        if "error" in answer:
            raise BrowserFailed(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _wait(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for place, message in enumerate(self._seen):
                if wanted(message):
                    return self._seen.pop(place)
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserFailed(f"no answer within {PATIENCE_SECONDS:g} s: {self._log()}")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise BrowserFailed(f"the browser has ended: {self._log()}")
            *whole, self._rest = (self._rest + more).split(b"\0")
            for text in whole:
                self._note(json.loads(text))

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.problems.append(str(params["entry"]))
            case "Runtime.consoleAPICalled":
                self.problems.append(str(params["args"]))
            case _:
                self._seen.append(message)

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-1500:]

    def _remove(self) -> None:
        for end in (self._in, self._out):
            os.close(end)
        shutil.rmtree(self._folder, ignore_errors=True)
