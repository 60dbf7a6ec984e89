import pytest

from forkpoint import doctor


@pytest.fixture(autouse=True)
def _checks_have_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer for all checks than a person would wait."""
    monkeypatch.setattr(doctor.examine, "__defaults__", (600.0,))
