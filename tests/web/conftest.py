"""One browser for all tests of the page. Each test gets a page that fails it on any error or request."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from bench.page_browser import find_chromium, launch
from cases import CASES
from forkpoint.evidence import read
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.report.page import render_html

Opener = Callable[..., Page]
SIZE = {"viewport": {"width": 1200, "height": 1600}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while it is there, its event loop keeps tests of other files from running theirs."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def plain(browser: Browser) -> BrowserContext:
    """Shared, since a page keeps nothing: a window of its own costs more than most pages."""
    return browser.new_context(**SIZE)


@pytest.fixture
def open_page(browser: Browser, plain: BrowserContext, tmp_path: Path) -> Iterator[Opener]:
    """Opens a report from disk. At the end: no console message, no exception, no request but for the file itself."""
    wrong: list[str] = []
    asked: list[str] = []
    opened: list[str] = []

    def heard(request: Request) -> None:
        asked.append(request.url.partition("#")[0])

    def open_(report: Verdict | Path, **options: object) -> Page:
        file = report if isinstance(report, Path) else tmp_path / f"report-{len(opened)}.html"
        if isinstance(report, Verdict):
            file.write_text(render_html(report), encoding="utf-8")
        page = (browser.new_context(**{**SIZE, **options}) if options else plain).new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", heard)
        opened.append(file.as_uri())
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield open_
    for context in browser.contexts:
        for page in context.pages:
            page.close()
        if context != plain:
            context.close()
    assert wrong == []
    assert set(asked) <= set(opened)


@pytest.fixture
def incident() -> Callable[[str], Verdict]:
    return picture_of


@cache
def picture_of(number: str) -> Verdict:
    """The verdict of a recorded case with its picture and source."""
    capture = read([str(CASES / number / "capture")])
    return diagnose(capture, [str(CASES / number / "source")], picture=True, embed_source=True)
