"""`make picture`: draw docs/demo.svg, a recording of the demo, from a real run.

A broker, a pool and a daemon of its own serve the demo's flights, while `osrdyne status` is asked every other second.
The picture plays these answers, and ends with the demo's result. A browser that shows no animation shows the result.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from pathlib import Path

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text

import steps
from osrdyne.commands import status_table
from osrdyne_runtime.console.streams import guarded
from testbed.broker import DEMO_VERSION, Broker
from testbed.pool import DaemonProcess, Pool

PICTURE = steps.ROOT / "docs/demo.svg"
#: Columns and lines of the terminal.
COLUMNS, LINES = 100, 20
#: Seconds between two looks, and for how long the picture shows each and the result.
INTERVAL_SECONDS, SHOWN_SECONDS, RESULT_SHOWN_SECONDS = 2.0, 1.0, 6.0
#: Hours of the day that are replayed, and how many times faster than the day.
DEMO = ("--hours", "5-8", "--speed", "600", "--timeout", "240")
#: Seconds without a request after which a key is unbound, and then stopped.
DELAY_SECONDS = 3.0

#: Pixels of a character cell, and around the text.
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8, 18, 14
COLOURS = {"green": "#7ee787", "yellow": "#e3b341", "red": "#ff7b72", "bold": "#ffffff"}

Line = Sequence[Segment]


def lines(shown: RenderableType) -> list[Line]:
    """Render as a terminal of this size would, with its last line saying how much does not fit."""
    console = Console(width=COLUMNS, file=StringIO(), force_terminal=True, color_system="standard", highlight=False)
    rendered: list[Line] = [*console.render_lines(shown, pad=False)]
    if len(rendered) <= LINES - 1:
        return rendered
    return [*rendered[: LINES - 2], [Segment(f"... and {len(rendered) - LINES + 2} more")]]


def prompt(command: str) -> list[Line]:
    """What the reader types."""
    return lines(Text(f"$ {command}", style="bold"))


def draw(frames: Sequence[Sequence[Line]]) -> str:
    """Return the picture: each frame for a moment, the last one for longer, again and again."""
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, LINES * CELL_HEIGHT + 2 * MARGIN
    whole = SHOWN_SECONDS * (len(frames) - 1) + RESULT_SHOWN_SECONDS
    style = (
        f"text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}}"
        f".f{{visibility:hidden;animation:f {whole}s step-end infinite}}.r{{animation-name:r}}"
        f"@keyframes f{{0%{{visibility:visible}}{SHOWN_SECONDS / whole:.2%}{{visibility:hidden}}}}"
        f"@keyframes r{{0%{{visibility:visible}}{RESULT_SHOWN_SECONDS / whole:.2%}{{visibility:hidden}}}}"
        "@media (prefers-reduced-motion){.f{animation:none}.r{visibility:visible}}"
        + "".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())
    )
    groups = []
    for number, frame in enumerate(frames):
        kind = "f r" if number == len(frames) - 1 else "f"
        rows = "".join(_text(row, line) for row, line in enumerate(frame))
        groups.append(f'<g class="{kind}" style="animation-delay:{SHOWN_SECONDS * number:g}s">{rows}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        "<title>osrdyne status while the demo replays flights: groups start, are ready, and stop</title>"
        f'<style>{style}</style><rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        + "\n".join(groups)
        + "</svg>\n"
    )


def _text(row: int, line: Line) -> str:
    """One line of the terminal. Words are placed by their column, whatever the width of the font."""
    parts, column = [], 0
    for segment in line:
        text = segment.text.rstrip("\n")
        for word in _words(text):
            x = MARGIN + (column + word[0]) * CELL_WIDTH
            parts.append(f'<tspan x="{x}"{_class(segment)}>{escape(word[1], quote=False)}</tspan>')
        column += len(text)
    y = MARGIN + (row + 1) * CELL_HEIGHT - 4
    return f'<text y="{y}">{"".join(parts)}</text>' if parts else ""


def _words(text: str) -> Iterable[tuple[int, str]]:
    """The parts of a text that two blanks and more keep apart, each with its column."""
    start = 0
    for part in text.split("  "):
        word = part.lstrip()
        if word:
            yield start + len(part) - len(word), word.rstrip()
        start += len(part) + 2


def _class(segment: Segment) -> str:
    style = segment.style
    if style is None:
        return ""
    name = style.color.name if style.color is not None else ("bold" if style.bold else "")
    return f' class="{name}"' if name in COLOURS else ""


def record(directory: Path, broker: Broker) -> list[list[Line]]:
    """Run the demo; return what `osrdyne status` showed meanwhile, and the demo's result."""
    broker.management.add_vhost("picture", broker.admin)
    pool = Pool.on(broker, "picture", name="airports", unbind_delay=DELAY_SECONDS, stop_delay=DELAY_SECONDS)
    worker = [sys.executable, str(steps.ROOT / "examples/airports/worker.py")]
    daemon = DaemonProcess.of(pool, directory, worker=worker).start()
    frames = []
    try:
        demo = subprocess.Popen(
            [
                *(sys.executable, "-m", "examples.airports.demo", *DEMO),
                *("--broker", pool.client_uri, "--events", pool.uri(pool.users.monitor)),
            ],
            cwd=steps.ROOT,
            env=steps.environment(COLUMNS=str(COLUMNS)),
            stdout=subprocess.PIPE,
            text=True,
        )
        while demo.poll() is None:
            watched = [*prompt("osrdyne status --watch 2"), *lines(status_table.render(daemon.status()))]
            frames.append(watched[:LINES])
            try:
                demo.wait(timeout=INTERVAL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        assert demo.stdout is not None
        result = demo.stdout.read()
        if demo.returncode:
            steps.stop(f"the demo failed; the picture is what it was:\n{result}")
    finally:
        daemon.close()
    typed = f'make demo DEMO="{" ".join(DEMO)}"'
    return [*frames, [*prompt(typed), *lines(Text(result.rstrip()))][:LINES]]


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory(prefix="osrdyne-picture-") as directory, Broker(DEMO_VERSION) as broker:
        frames = record(Path(directory), broker)
    PICTURE.write_text(draw(frames))
    print(f"{PICTURE.relative_to(steps.ROOT)}: {len(frames)} frames, {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    with guarded("picture"):
        main()
