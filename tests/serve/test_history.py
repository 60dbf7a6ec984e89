"""The page of a store, served: alone or beside a folder, and again when an incident comes."""

from pathlib import Path

from bench.history_jobs import plant
from forkpoint.cli import main
from forkpoint.history.store import open_store
from serve.conftest import serving


def test_the_history_is_shown_and_again_when_an_incident_comes(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "history.sqlite"))
    store.write(plant(0).incident)
    with serving(None, "--store", str(tmp_path / "history.sqlite")) as server:
        page = server.get("/")
        assert plant(0).incident.id in page.text
        assert server.ask("/").status == 403
        store.write(plant(1).incident)

        assert "event: changed" in server.wait_for_change(page.text)
        assert plant(1).incident.id in server.get("/").text
    store.close()


def test_a_server_needs_a_folder_or_a_store_that_exists(tmp_path: Path) -> None:
    assert main(["serve"]) == 2
    assert main(["serve", "--store", str(tmp_path / "none.sqlite")]) == 3
