import io
from collections.abc import Iterator

import pytest

from forkpoint.cli.output import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")


def ticking(step: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step


def shown(stream: io.StringIO, *, step: float, quiet: bool = False, what: str = "nccl_trace_rank_7") -> str:
    clock = ticking(step)
    with Progress(stream, quiet=quiet, clock=lambda: next(clock)) as progress:
        for done in range(3):
            progress(done, 3, what)
    return stream.getvalue()


def test_long_work_shows_one_line_and_clears_it() -> None:
    text = shown(Terminal(), step=5.0)

    assert text.startswith("\r\x1b[K0/3 nccl_trace_rank_7\r\x1b[K1/3")
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_short_work_shows_nothing() -> None:
    assert shown(Terminal(), step=0.01) == ""


def test_quiet_shows_nothing() -> None:
    assert shown(Terminal(), step=5.0, quiet=True) == ""


def test_a_file_or_pipe_gets_nothing() -> None:
    assert shown(io.StringIO(), step=5.0) == ""


def test_a_hostile_name_neither_acts_nor_wraps() -> None:
    line = shown(Terminal(), step=5.0, what="\x1b[2J\n" + "x" * 500).split("\r\x1b[K")[1]

    assert line.isprintable()
    assert len(line) < 30


def test_bytes_come_with_an_estimate() -> None:
    stream, clock = Terminal(), ticking(5.0)
    with Progress(stream, quiet=False, in_bytes=True, clock=lambda: next(clock)) as progress:
        progress(500_000_000, 2_000_000_000, "x.log")

    assert "25% of 2000 MB, 30 s left: " in stream.getvalue()
