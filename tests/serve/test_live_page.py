"""The served page in a real browser: it opens, is quiet, and loads itself again when a file comes."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from bench.page_browser import PATIENCE_MS, find_chromium, launch
from cases import CASES
from serve.conftest import serving


def test_a_reader_opens_the_list_follows_it_and_sees_a_new_file(tmp_path: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium-headless-shell")
    wrong: list[str] = []
    asked: list[str] = []
    job = tmp_path / "job <b>1&lt;"
    job.mkdir()
    for rank in (0, 1, 2):
        shutil.copy(CASES / "0001" / "capture" / f"nccl_trace_rank_{rank}", job)
    with serving(tmp_path) as server, sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))

        page.goto(server.url)
        page.click("text=job <b>1&lt;")
        page.wait_for_selector("html[data-ready=yes]")
        before = page.inner_text("#answer")
        assert server.token not in page.url
        shutil.copy(CASES / "0001" / "capture" / "nccl_trace_rank_3", job)
        page.wait_for_function("() => document.querySelector('#answer').innerText.includes('4 / 4 ranks')")
        page.click("text=All incidents")
        page.wait_for_selector("h1 >> text=Incidents in")
        browser.close()

    assert "3 / 4 ranks" in before
    assert wrong == []
    assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{server.port}"}
