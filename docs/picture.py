"""Draws docs/pictures/report.png, the page of the demo incident, in Debian's Chromium: `python -m docs.picture`.

Not part of `make docs`: letters are smoothed differently on each machine, so no test could compare it.
"""

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from bench.page_browser import find_chromium, launch
from forkpoint.cli import main

PICTURE = Path(__file__).parent / "pictures" / "report.png"
_WIDTH, _HEIGHT = 1280, 800


def draw(chromium: str, report: Path) -> bytes:
    """The first screen: sentence, lanes, code, change and evidence."""
    with sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        page = browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light").new_page()
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        picture = page.screenshot(animations="disabled")
        browser.close()
    return picture


if __name__ == "__main__":
    found = find_chromium()
    if found is None:
        raise SystemExit("no chromium: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        main(["demo", "--quiet", "--html", str(file)])
        PICTURE.write_bytes(draw(found, file))
