"""One browser for all tests of the page. Each test gets a page that fails it on any error or request."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from bench.page_browser import PATIENCE_MS, find_chromium, launch
from cases import CASES
from forkpoint.evidence import read
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.report.page import render_html

Opener = Callable[..., Page]
SIZE = {"viewport": {"width": 1200, "height": 1600}}


HERE = Path(__file__).parent


class Open:
    """The browser, from the first test that asks for it to the last one in this folder: to start it costs more than most tests."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._browser: Browser | None = None
        self._plain: BrowserContext | None = None
        self._kept: Page | None = None
        """Always open: with its last page a window closes, and the next page would need a new one."""

    @property
    def browser(self) -> Browser:
        if self._browser is None:
            chromium = find_chromium()
            if chromium is None:
                pytest.skip("no chromium: apt-get install chromium-headless-shell")
            self._browser = launch(self._ends.enter_context(sync_playwright()), chromium)
            self._ends.callback(self._browser.close)
        return self._browser

    @property
    def plain(self) -> BrowserContext:
        """Shared, since a page keeps nothing: a window of its own costs more than most pages."""
        if self._plain is None:
            self._plain = self.browser.new_context(**SIZE)
            self._kept = self._plain.new_page()
            self._plain.set_default_timeout(PATIENCE_MS)
        return self._plain

    def tidy(self) -> None:
        for context in self.browser.contexts:
            for page in context.pages:
                if page != self._kept:
                    page.close()
            if context != self._plain:
                context.close()

    def close(self) -> None:
        self._ends.close()
        self._browser = self._plain = self._kept = None


OPEN = Open()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Not at the end of the session: while it is there, its event loop keeps tests of other folders from running theirs."""
    if nextitem is None or HERE not in nextitem.path.parents:
        OPEN.close()


@pytest.fixture
def browser() -> Browser:
    return OPEN.browser


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
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
        page = (browser.new_context(**{**SIZE, **options}) if options else OPEN.plain).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", heard)
        opened.append(file.as_uri())
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield open_
    OPEN.tidy()
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
