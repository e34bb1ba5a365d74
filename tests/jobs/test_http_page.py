"""The page of the jobs' administration in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne_jobs import engine_for, migrate, states
from testbed.browser import Browser
from testbed.waiting import until
from tests.jobs.administration import TOKEN, Administration, administration
from tests.jobs.test_store import Store

# In a browser, which is installed where there is none.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("browser of the jobs' page")]

MARKUP = "<img src=x onerror=alert(1)>"
#: Whatever is wider than the room that it has, and does not scroll. Heads of tables are hidden in narrow windows.
OVERFLOWING = """
[...document.querySelectorAll('body, body *')]
  .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
  .filter(one => getComputedStyle(one).overflowX === 'visible' && getComputedStyle(one).display !== 'inline')
  .filter(one => !one.closest('thead'))
  .map(one => one.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Store]:
    engine = engine_for(f"sqlite:///{tmp_path / 'jobs.db'}")
    migrate(engine)
    yield Store(engine)
    engine.dispose()


class PageView:
    """What a person sees of the page, and does with it."""

    def __init__(self, browser: Browser, served: Administration, *, width: int = 1280) -> None:
        self.browser = browser
        browser.visit(served.address, width=width)

    def text(self, selector: str = "body") -> str:
        """The visible text of an element."""
        return str(self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def shows(self, text: str, selector: str = "body") -> None:
        until(lambda: text in self.text(selector), what=f"{text!r} in {selector}")

    def click(self, label: str, within: str = "body") -> None:
        """Click the first button of this label that can be seen and used."""
        script = f"""
        (() => {{
          const found = [...document.querySelector({json.dumps(within)}).querySelectorAll('button')].find(
            one => one.textContent === {json.dumps(label)} && one.offsetParent !== null && !one.disabled);
          if (found) found.click();
          return Boolean(found);
        }})()"""
        until(lambda: self.browser.evaluate(script), what=f"a button {label!r}")

    def enter(self, selector: str, value: str) -> None:
        chosen = json.dumps(selector)
        self.browser.evaluate(f"document.querySelector({chosen}).value = {json.dumps(value)}")
        self.browser.evaluate(f"document.querySelector({chosen}).form.requestSubmit()")

    def usable(self) -> list[Any]:
        buttons = "[...document.querySelectorAll('[data-action]')].filter(one => !one.disabled)"
        return list(self.browser.evaluate(f"{buttons}.map(one => one.textContent)"))


def parked(jobs: Store, resource: str, reason: str) -> int:
    number = jobs.register(resource, attempts=1)
    jobs.finish(jobs.begun(resource), states.FAILED, reason, f"  File of {reason}")
    return number


def test_states_failures_and_jobs_are_shown(browser: Browser, jobs: Store) -> None:
    waits, number = jobs.register("waits"), parked(jobs, "region-7", "TimeoutError: after 7 s")
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.shows("parked\t1\t", "#states")
        seen.shows(f"job {waits}, registered ", "#states")
        assert "1\tt\tTimeoutError: after 7 s\tjob" in seen.text("#causes")
        assert "0 done, 1 failed" in seen.text("#facts")
        assert "region-7" in seen.text("#list")
        seen.click("parked", "#states")
        until(lambda: "waits" not in seen.text("#list"))
        seen.click(f"job {number}", "#list")
        seen.shows("TimeoutError: after 7 s", "#attempts")
        seen.browser.evaluate("document.querySelector('#attempts summary').click()")
        seen.shows("File of TimeoutError", "#attempts pre")
        assert '"n": 1' in seen.text("#payload")
        assert seen.usable() == ["Redo", "Cancel", "Delete"]
        assert browser.problems == []
        assert {request.removeprefix(served.address).partition("?")[0] for request in browser.requests} == {
            *("", "page.css", "page.js"),
            *("api/jobs", "api/jobs/figures", f"api/jobs/{number}"),
        }


def test_a_job_is_redone_cancelled_and_deleted_once_it_is_confirmed(browser: Browser, jobs: Store) -> None:
    number = parked(jobs, "r", "no")
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.click(f"job {number}", "#list")
        seen.click("Redo", "#job")
        seen.click("Keep it as it is", "#confirm")
        assert jobs.state(number) == states.PARKED
        seen.click("Redo", "#job")
        seen.click("Redo it", "#confirm")
        seen.shows(f"Job {number} is registered again.", "#message")
        assert jobs.state(number) == states.REGISTERED
        seen.click("Cancel", "#job")
        seen.click("Cancel it", "#confirm")
        seen.shows(f"Job {number} is cancelled.", "#message")
        assert jobs.state(number) == states.CANCELLED
        seen.click("Delete", "#job")
        seen.shows("cannot be undone", "#confirm")
        seen.click("Delete it", "#confirm")
        seen.shows(f"Job {number} is deleted.", "#message")
        seen.shows("There are no such jobs.")
    assert jobs.do(lambda c: c.exec_driver_sql("SELECT count(*) FROM osrdyne_job").scalar()) == 0
    assert browser.problems == []


def test_a_running_job_hears_that_it_is_cancelled_and_cannot_be_deleted(browser: Browser, jobs: Store) -> None:
    number = jobs.register()
    jobs.begun()
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.click(f"job {number}", "#list")
        until(lambda: seen.usable() == ["Cancel"])
        seen.click("Cancel", "#job")
        seen.click("Cancel it", "#confirm")
        seen.shows("Its worker is asked to end it.", "#message")
        seen.shows("running, and asked to end", "#fields")
    assert jobs.get(number).cancel


def test_the_page_asks_for_the_token_and_keeps_it_for_its_tab(browser: Browser, jobs: Store) -> None:
    jobs.register("region-7")
    with administration(jobs.engine) as served:
        seen = PageView(browser, served)
        seen.shows("Token of the administration")
        assert "region-7" not in seen.text()
        seen.enter("#token", "wrong-horse-battery-staple")
        seen.shows("This is not the token.")
        seen.enter("#token", TOKEN)
        seen.shows("region-7", "#list")
        assert browser.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        assert [request for request in browser.requests if TOKEN in request] == []
        seen = PageView(browser, served)
        seen.shows("region-7", "#list")
        seen.click("Forget the token")
        seen.shows("Token of the administration")
        assert browser.evaluate("sessionStorage.length") == 0


def test_names_and_reasons_that_are_markup_stay_text(browser: Browser, jobs: Store) -> None:
    number = parked(jobs, MARKUP, MARKUP)
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.click(f"job {number}", "#list")
        seen.shows(MARKUP, "#attempts")
        assert all(MARKUP in seen.text(place) for place in ("#list", "#causes", "#fields"))
        assert browser.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
        assert browser.problems == []


def test_a_long_list_is_shown_in_pages(browser: Browser, jobs: Store) -> None:
    for number in range(60):
        jobs.register(f"resource-{number:02}")
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.shows("resource-49", "#list")
        assert "resource-50" not in seen.text("#list")
        seen.click("Next jobs")
        seen.shows("resource-59", "#list")
        seen.click("First jobs")
        seen.shows("resource-00", "#list")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_cut_off_in_a_narrow_window(browser: Browser, jobs: Store, width: int) -> None:
    number = parked(jobs, "r" * 200, "Error: " + "x" * 500)
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served, width=width)
        seen.click(f"job {number}", "#list")
        seen.shows("Error: xxx", "#attempts")
        assert browser.evaluate(OVERFLOWING) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_every_field_has_a_label(browser: Browser, jobs: Store) -> None:
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.shows("There are no such jobs.")
        fields = "[...document.querySelectorAll('input, select')]"
        assert browser.evaluate(f"{fields}.length") == 6
        assert browser.evaluate(f"{fields}.filter(one => one.labels.length !== 1).length") == 0


def test_the_page_reports_that_its_server_is_gone(browser: Browser, jobs: Store) -> None:
    with administration(jobs.engine, token=None) as served:
        seen = PageView(browser, served)
        seen.shows("There are no such jobs.")
    seen.click("Refresh")
    seen.shows("The server does not answer.", "#message")
