"""Reading NVML in a process of its own."""

import sys
from pathlib import Path

import pytest

from forkpoint.doctor import nvml_reader
from forkpoint.doctor.live import live_system
from forkpoint.doctor.nvml import INSTALL, DriverStuck, LinkErrors, Nvml, parse_nvml, read_nvml
from forkpoint.doctor.system import Ran, Unanswered
from looping import for_each

STAND_IN = Path(__file__).parent / "nvml_stand_in"


def test_the_reader_tells_of_every_gpu_it_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))

    told = read_nvml(live_system().run)

    assert isinstance(told, Nvml)
    working, lost = told.gpus
    assert (told.driver, working.name, working.bus_id) == ("570.86.15", "NVIDIA H100 80GB HBM3", "0000:18:00.0")
    assert (working.uncorrected, working.uncorrected_ever, working.remap_pending, working.remap_failed) == (
        0,
        7,
        True,
        False,
    )
    assert (working.pages_pending, working.hottest, working.margin) == (None, None, None)
    assert (working.recovery_action, working.reasons, working.idle) == (4, (1, 1), True)
    assert (lost.index, lost.lost) == (1, "GPU is lost")


def test_the_reader_takes_counters_twice_and_by_field_where_the_older_call_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))

    told = read_nvml(live_system().run)

    assert isinstance(told, Nvml)
    first, second = told.gpus[0].links
    assert (first.before, first.after) == (LinkErrors(1, 1, 5), LinkErrors(2, 1, 5))
    assert (second.before, second.after) == (LinkErrors(0, 0, 90), LinkErrors(0, 0, 90))


@for_each(
    ("document", "kind"),
    [
        ({"missing": "nvidia-ml-py"}, Unanswered),
        ({"missing": "driver"}, Unanswered),
        ({"failed": "Unknown"}, DriverStuck),
    ],
)
def test_a_missing_library_is_no_trouble_of_the_driver_and_a_failing_driver_is(
    document: dict[str, str], kind: type[Unanswered]
) -> None:
    assert type(parse_nvml(document)) is kind


def test_the_line_that_installs_the_library_comes_with_its_absence() -> None:
    told = parse_nvml({"missing": "nvidia-ml-py"})

    assert isinstance(told, Unanswered)
    assert told.fix == INSTALL


@for_each("answer", [Unanswered("it did not answer in 10 s"), Ran(-11, "", "Segmentation fault"), Ran(0, "{")])
def test_a_reader_that_does_not_end_or_ends_without_an_answer_speaks_against_the_driver(
    answer: Ran | Unanswered,
) -> None:
    assert isinstance(read_nvml(lambda argv, timeout_s=2.0: answer), DriverStuck)


def test_a_link_that_is_gone_at_the_second_read_is_not_active() -> None:
    row = {"index": 0, "reasons": 0, "links": [{"active": 1}, {"active": 1}]}

    told = parse_nvml({"driver": "1", "gpus": [{**row, "later": {"reasons": 0, "links": [{"active": 1}]}}]})

    assert isinstance(told, Nvml)
    assert [link.active for link in told.gpus[0].links] == [True, False]


def test_the_library_has_every_name_the_reader_asks_for() -> None:
    library = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    asked = {word for word in Path(nvml_reader.__file__).read_text().split('"') if word.startswith("nvmlDevice")}

    assert len(asked) > 10
    assert [name for name in sorted(asked) if not hasattr(library, name)] == []


def test_this_machine_is_read_in_the_interpreter_that_runs_the_doctor() -> None:
    asked: list[tuple[str, ...]] = []

    read_nvml(lambda argv, timeout_s=2.0: asked.append(tuple(argv)) or Ran(0, '{"missing": "driver"}'))

    assert [argv[:2] for argv in asked] == [(sys.executable, "-P")]
