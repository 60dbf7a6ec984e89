"""A table of cases in one test: each row runs, and all rows that fail are reported together.

`pytest.mark.parametrize` makes an item per row, which costs more than most rows take: collected by every worker, set up,
torn down, reported. It stays right where rows take seconds, or share a fixture that depends on the row.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


def for_each(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], Any] | Iterable[Any] | None = None,
    one_in: int = 1,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Takes what `parametrize` takes. `tmp_path` is a folder per row, `monkeypatch` is undone after each.

    `one_in`: one row in so many is run; `make sweep` runs all of them.
    """
    columns = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    table = [_row(columns, row) for row in rows]
    labels = [_label(row, ids) for row in table] if ids is None or callable(ids) else [str(label) for label in ids]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        assert set(columns) <= set(signature.parameters), f"{test.__name__} does not take {columns}"

        @functools.wraps(test)
        def loop(*, rows_one_in: int = 1, **fixtures: Any) -> None:
            failed: list[Exception] = []
            for place, (row, label) in list(enumerate(zip(table, labels, strict=True)))[::rows_one_in]:
                try:
                    with _fresh(fixtures, place) as own:
                        test(**own, **row)
                except Exception as error:  # noqa: BLE001 - the row's failure, raised below with the others
                    error.add_note(f"row {place}: {label}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(table)} rows of {test.__name__} failed", failed)

        kept = [p for p in signature.parameters.values() if p.name not in columns]
        if one_in > 1:
            kept.append(inspect.Parameter("rows_one_in", inspect.Parameter.KEYWORD_ONLY))
        loop.__signature__ = signature.replace(parameters=kept)
        return shares(loop) if one_in > 1 else loop

    shares = pytest.mark.parametrize("rows_one_in", [one_in, pytest.param(1, marks=pytest.mark.sweep)])
    assert table, "a table without rows tests nothing"
    return decorate


def one_in(share: int) -> Any:
    """For a test that walks over cases by itself: `share`, and 1 in `make sweep`. It takes every `share`-th of them."""
    return pytest.mark.parametrize("share", [share, pytest.param(1, marks=pytest.mark.sweep)])


def is_swept(request: pytest.FixtureRequest) -> bool:
    """Whether tests of `make sweep` are run, which need more of what a fixture makes."""
    return any(item.get_closest_marker("sweep") for item in request.session.items)


def _row(columns: list[str], row: Any) -> dict[str, Any]:
    values = row if len(columns) > 1 else (row,)
    return dict(zip(columns, values, strict=True))


def _label(row: dict[str, Any], say: Callable[[Any], Any] | None) -> str:
    text = ", ".join(f"{name}={(say or repr)(value)!s}" for name, value in row.items())
    return text if len(text) < 300 else f"{text[:300]}..."


@contextmanager
def _fresh(fixtures: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(place)
        own["tmp_path"].mkdir()
    if "capsys" in own:
        own["capsys"].readouterr()
    if "monkeypatch" not in own:
        yield own
        return
    with pytest.MonkeyPatch.context() as patch:
        own["monkeypatch"] = patch
        yield own
