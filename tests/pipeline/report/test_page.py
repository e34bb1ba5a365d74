"""The report in a real browser, in light and dark: it fetches nothing, complains of nothing, and can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne_pipeline.report import content
from osrdyne_pipeline.report.page import page
from testbed.browser import Browser
from tests.pipeline.report import samples

# In a browser, which is installed where there is none.
pytestmark = pytest.mark.full

#: Boxes of all text in each chart, with the chart's own.
TEXTS_OF_CHARTS = """
[...document.querySelectorAll('svg')].map(svg => {
  const box = one => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  return {chart: svg.querySelector('title').textContent, box: box(svg),
          texts: [...svg.querySelectorAll('text')].map(one => [one.textContent, box(one)])};
})"""
#: Whatever is wider than the room that it has, and does not scroll.
OVERFLOWING = """
[...document.querySelectorAll('body, body *:not(svg, svg *)')]
  .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
  .filter(one => !one.closest('.scroll') && getComputedStyle(one).overflowX === 'visible')
  .filter(one => getComputedStyle(one).display !== 'inline')
  .map(one => one.outerHTML.slice(0, 200))"""
#: Colours of every text, and what lies behind it; colours of marks, and of their card.
COLOURS = """
(() => {
  const behind = one => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const seen = {};
  for (const one of document.querySelectorAll('body *')) {
    const words = [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!words || one.closest('title, desc') || one.tagName === 'title' || one.tagName === 'desc') continue;
    const style = getComputedStyle(one);
    seen[[one.ownerSVGElement ? style.fill : style.color, behind(one), 4.5].join("|")] = one.outerHTML.slice(0, 120);
  }
  for (const one of document.querySelectorAll('svg rect:not([class^=heat]), svg circle'))
    seen[[getComputedStyle(one).fill, behind(one), 3].join("|")] = one.getAttribute('class');
  return Object.entries(seen);
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page each of a full pool, of one with keys that mean harm, and of an empty one."""
    folder = tmp_path_factory.mktemp("pages")
    contents = {"full": samples.full(), "hostile": samples.full(samples.HOSTILE_KEYS), "empty": samples.EMPTY}
    for name, shown in contents.items():
        (folder / f"{name}.html").write_text(page(shown))
    return {name: folder / f"{name}.html" for name in contents}


def every_page(test: Any) -> Any:
    test = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])(test)
    return pytest.mark.parametrize("name", ["full", "hostile", "empty"])(test)


@every_page
def test_a_page_fetches_nothing_but_itself_and_has_no_errors(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool, tmp_path: Path
) -> None:
    browser.visit(pages[name], dark=dark)
    browser.screenshot(tmp_path / "page.png")

    assert browser.requests == [pages[name].as_uri()]
    assert browser.problems == []
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert browser.evaluate("document.scripts.length") == 0


@every_page
def test_every_text_and_mark_stands_out_from_what_is_behind_it(
    browser: Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    browser.visit(pages[name], dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")

    pairs = [(*colours.split("|"), example) for colours, example in browser.evaluate(COLOURS)]

    weak = [pair for pair in pairs if contrast(pair[0], pair[1]) < float(pair[2])]
    assert pairs
    assert weak == []
    assert (luminance(browser.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.2) is dark


@pytest.mark.parametrize("width", [390, 820, 1280, 1920])
@pytest.mark.parametrize("name", ["full", "hostile", "empty"])
def test_no_text_is_cut_off_or_touches_another(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.visit(pages[name], width=width)

    assert browser.evaluate(OVERFLOWING) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for chart in browser.evaluate(TEXTS_OF_CHARTS):
        outside = [text for text, box in chart["texts"] if not inside(box, chart["box"])]
        assert outside == [], chart["chart"]
        assert touching(chart["texts"]) == [], chart["chart"]


def test_every_chart_has_a_title_a_description_and_its_numbers_as_a_table(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.visit(pages["full"])

    unnamed = (
        "[...document.querySelectorAll('svg')].filter(svg => !['title', 'desc'].every("
        "tag => svg.querySelector(':scope > ' + tag)?.textContent))"
    )
    without = (
        "[...document.querySelectorAll('section')].filter(one => one.querySelector('svg') && !one.querySelector('td'))"
    )
    assert browser.evaluate("document.querySelectorAll('svg[role=img]').length") >= 9
    assert browser.evaluate(f"{unnamed}.length") == 0
    assert browser.evaluate(f"{without}.length") == 0


def test_keys_that_are_markup_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.visit(pages["hostile"])

    assert browser.evaluate("document.querySelectorAll('script, img, iframe, object, b').length") == 0
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    shown = browser.evaluate("document.body.textContent")
    assert "<script>alert(document.domain)</script>" in shown
    assert "\\u202egnp.exe" in shown
    assert "\\x1b[31mred\\x00" in shown
    assert "\u202e" not in shown


def test_a_pool_without_data_says_so_in_every_section(browser: Browser, pages: dict[str, Path]) -> None:
    browser.visit(pages["empty"])

    assert browser.evaluate("document.querySelectorAll('svg').length") == 0
    sections = browser.evaluate("document.querySelectorAll('main section').length")
    assert sections >= 8
    assert browser.evaluate("document.querySelectorAll('main section p.nothing').length") == sections


def test_a_page_stays_small(pages: dict[str, Path]) -> None:
    assert max(file.stat().st_size for file in pages.values()) < 300_000


def test_what_the_recommendation_brings_is_said_with_its_numbers() -> None:
    text = page(samples.full())

    for words in ("18,300", "11,020", "−40 %", "2013-10-20", "histogram policy", "-42.0 %"):
        assert words in text


def test_a_pool_without_evidence_gives_its_reason() -> None:
    whole = samples.full()
    without = content.ReportContent(
        pool="core", made_ms=0, span=whole.span, totals=whole.totals, no_evidence="Five days are too few."
    )

    assert page(without).count("Five days are too few.") >= 2


def inside(box: list[float], around: list[float]) -> bool:
    return box[0] >= around[0] - 1 and box[1] >= around[1] - 1 and box[2] <= around[2] + 1 and box[3] <= around[3] + 1


def touching(texts: list[tuple[str, list[float]]]) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes overlap. A box is as high as a line, of which letters leave two pixels free."""
    found = []
    for place, (text, a) in enumerate(texts):
        for other, b in texts[place + 1 :]:
            if a[0] < b[2] and b[0] < a[2] and a[1] + 2 < b[3] - 2 and b[1] + 2 < a[3] - 2:
                found.append((text, other))
    return found


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
