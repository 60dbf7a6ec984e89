"""The page of a store: drawn in a real browser, filtered, and without effect of what the store holds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Page

from bench.history_jobs import BAD, plant
from forkpoint.history.page import read_overview, render_page
from forkpoint.history.store import open_store

HOSTILE = "</script><img src=x onerror=alert(1)> \x1b[2J \u202e @@SCRIPT@@"


def test_the_page_shows_causes_forks_nodes_and_hours_and_filters(
    open_page: Callable[[Path], Page], tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "history.sqlite"))
    planted = [plant(number).incident for number in range(150)]
    for incident in planted:
        store.write(incident)
    some = planted[0]
    store.write(replace(some, headline=HOSTILE, fork=HOSTILE, job=replace(some.job, job=HOSTILE)))
    file = tmp_path / "history.html"
    file.write_text(render_page(read_overview(store)), encoding="utf-8")
    store.close()
    page = open_page(file)

    def rows(where: str) -> int:
        return page.locator(f"#{where} tbody tr").count()

    assert rows("incidents") == 150
    assert rows("forks") == 20
    nodes = [page.locator("#nodes tbody tr").nth(n).locator("td").first.inner_text() for n in range(2)]
    assert {f"{host} GPU {gpu}" for host, gpu in BAD} == set(nodes)
    assert page.locator("#chart rect").count() > 5
    assert page.locator("#numbers").inner_text().startswith("150")
    page.select_option("#cause", "host-stall")
    stalls = sum(one.cause == "host-stall" for one in planted)
    assert rows("incidents") == stalls
    assert page.locator("#numbers strong").first.inner_text() == str(stalls)
    page.select_option("#cause", "")
    page.fill("#search", some.id[:12])
    assert rows("incidents") == 1
    assert "onerror=alert(1)" in page.locator("#incidents tbody").inner_text()
    assert page.locator("img").count() == 0
