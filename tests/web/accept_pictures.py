"""Draw the golden pictures again: `make accept-pictures`. Look at each before you keep it."""

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from bench.page_browser import find_chromium, launch
from cases import CASES
from forkpoint.evidence import read
from forkpoint.pipeline import diagnose
from web.golden_pictures import GOLDEN, INCIDENTS, packed, photograph


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("no chromium found: apt-get install chromium-headless-shell")
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        for number in INCIDENTS:
            case = CASES / number
            capture = read([str(case / "capture")])
            verdict = diagnose(capture, [str(case / "source")], picture=True, embed_source=True)
            picture = packed(browser.new_page(), photograph(browser, verdict, Path(folder)))
            (GOLDEN / f"{number}.png").write_bytes(picture)
            print(f"{number}.png: {len(picture):,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
