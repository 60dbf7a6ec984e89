"""What the HTML report of a large job costs in a browser: `python -m bench.page_browser`. Debian's Chromium, headless."""

import argparse
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from bench.page import big_capture, flat_capture
from forkpoint.pipeline import diagnose
from forkpoint.report.page import render_html

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-lcd-text"]
_STEPS = ["+", "+", "+", "ArrowDown", "Shift+ArrowRight", "Shift+ArrowDown", "-", "-", "0", "ArrowUp"]
"""What a reader does in the heat map; each is a redraw of all pictures."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds."""

    first_picture: float
    """From the start of loading until ranks and progress are drawn."""
    first_paint: float
    build_heat_map: float
    redraws: tuple[float, ...]
    """Each of all pictures in sight, the heat map among them."""


def find_chromium() -> str | None:
    """The one without windows of its own where it is there: it draws the same pages for a third of the CPU."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    return next(filter(None, map(shutil.which, names)), None)


PATIENCE_MS = 240_000
"""How long a page is waited for: only a true hang reaches it, whatever else the machine does."""


def launch(playwright: Playwright, chromium: str) -> Browser:
    return playwright.chromium.launch(executable_path=chromium, args=_FLAGS)


def measure(page: Page, file: Path) -> Timing:
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.click("#heat summary")
    page.wait_for_selector("#heat-canvas")
    page.focus("#heat-canvas")
    page.evaluate("performance.clearMeasures('forkpoint:redraw')")
    for key in _STEPS:
        page.keyboard.press(key)
    return Timing(
        first_picture=_entry(page, "forkpoint:first-picture", "startTime")[0],
        first_paint=_entry(page, "first-contentful-paint", "startTime")[0],
        build_heat_map=_entry(page, "forkpoint:heat-build", "duration")[0],
        redraws=tuple(_entry(page, "forkpoint:redraw", "duration")),
    )


def _entry(page: Page, name: str, field: str) -> list[float]:
    return page.evaluate("([name, field]) => performance.getEntriesByName(name).map((e) => e[field])", [name, field])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=2000)
    args = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("no chromium found: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        for name, make in (("3-D job", big_capture), ("one group", flat_capture)):
            html = render_html(diagnose(make(args.ranks, args.entries), picture=True))
            file = Path(folder) / "report.html"
            file.write_text(html, encoding="utf-8")
            timing = measure(browser.new_page(viewport={"width": 1200, "height": 1600}), file)
            print(f"{name}, {args.ranks:,} ranks x {args.entries:,} entries: {len(html.encode()):,} bytes")
            print(f"  first picture {timing.first_picture:.0f} ms, first paint {timing.first_paint:.0f} ms")
            print(f"  heat map: rows and pyramid {timing.build_heat_map:.0f} ms")
            print(f"  redraw: median {statistics.median(timing.redraws):.1f} ms, worst {max(timing.redraws):.1f} ms")
        browser.close()


if __name__ == "__main__":
    main()
