from pathlib import Path

import pytest

from tests.lint.samples import use_sample_rules


@pytest.fixture
def sample_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    use_sample_rules(monkeypatch)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder
