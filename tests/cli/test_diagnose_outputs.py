"""Files and lines that `diagnose` gives besides its report."""

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import forkpoint
from forkpoint.cli import diagnose, main
from forkpoint.cli.output import write_file
from forkpoint.errors import UsageError
from forkpoint.report.verdict_line import PATTERN
from looping import for_each
from small_jobs import SmallJob

DEMO = Path(forkpoint.__file__).parent / "demo"
LINE = 'VERDICT v1 cause=divergent-path action=fix-code ranks=0 seq=16 confidence=0.95 headline="Rank 0 called all_reduce at metrics.py:15 while the other 3 called another all_reduce of size [71178]."'


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@for_each("more", [[], ["--quiet"], ["--json"], ["--md", "-"]])
def test_the_verdict_line_is_the_last_on_stderr(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(DEMO), *more]) == 1

    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == LINE
    assert re.fullmatch(PATTERN, err.splitlines()[-1])
    assert "VERDICT" not in out


def test_the_verdict_line_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(DEMO), "--quiet", "--no-verdict-line"])

    assert capsys.readouterr().err == ""


def test_all_outputs_together_keep_json_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--md", "a.md", "--sarif", "a.sarif", "--perfetto", "a.json"]

    assert main(["diagnose", str(DEMO), "--json", *files]) == 1

    out, err = capsys.readouterr()
    assert json.loads(out)["suspects"] == [0]
    assert Path("a.md").read_text().startswith("# forkpoint: divergent-path\n")
    assert json.loads(Path("a.sarif").read_text())["version"] == "2.1.0"
    assert json.loads(Path("a.json").read_text())["otherData"]["slices"] == 64
    assert [line for line in err.splitlines() if "written" in line] == [
        "forkpoint: written: a.md",
        "forkpoint: written: a.sarif",
        "forkpoint: written: a.json",
    ]
    assert sorted(path.name for path in Path().iterdir()) == ["a.json", "a.md", "a.sarif"]


def test_the_demo_has_the_same_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--md", "a.md"]) == 0

    assert Path("a.md").exists()
    assert LINE.partition(" headline")[0] in capsys.readouterr().err


@for_each("option", [["--md"], ["--md", "-"], ["--md=-"]])
def test_markdown_is_printed_in_place_of_the_report(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(DEMO), *option])

    assert capsys.readouterr().out.startswith("# forkpoint: divergent-path\n")


def test_sarif_is_printed_in_place_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(DEMO), "--sarif", "-"])

    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


@for_each(
    ("options", "says"),
    [
        (["--json", "--md", "-"], "only one of --json, --md can be printed"),
        (["--md", "--sarif", "-"], "only one of --md, --sarif can be printed"),
        (["--perfetto", "-"], "--perfetto writes a file"),
        (["--sarif", "missing/a.sarif"], "missing is not a directory; create it first"),
        (["--perfetto", "."], "is a directory; give a file in it"),
        (["--md", "dump_rank_0"], "does not end in .md"),
    ],
)
def test_outputs_that_cannot_be_are_wrong_usage_before_any_work(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkpoint.evidence.read", None)

    assert main(["diagnose", str(DEMO), *options]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_markdown_before_the_paths_does_not_overwrite_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = Path("nccl_trace_rank_0")
    evidence.write_bytes(b"evidence")

    assert main(["diagnose", "--md", "nccl_trace_rank_0", str(DEMO)]) == 2

    assert evidence.read_bytes() == b"evidence"
    assert "put --md after the paths" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_takes_neither_the_answer_nor_the_other_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_for_markdown(path: str, pieces: list[str]) -> None:
        if path.endswith(".md"):
            raise UsageError(f"{path}: cannot be written: No space left on device; choose another place")
        write_file(path, pieces)

    monkeypatch.setattr(diagnose, "write_file", fail_for_markdown)

    assert main(["diagnose", str(DEMO), "--md", "a.md", "--sarif", "a.sarif"]) == 2

    out, err = capsys.readouterr()
    assert out.startswith("Rank 0 called all_reduce")
    assert Path("a.sarif").exists()
    assert LINE in err
    assert err.splitlines()[-1] == "forkpoint: a.md: cannot be written: No space left on device; choose another place"


def test_a_file_is_whole_or_as_it_was() -> None:
    Path("a.md").write_text("old")

    def pieces():
        yield "new"
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match=r"a\.md: cannot be written: No space left on device; choose another path"):
        write_file("a.md", pieces())

    assert Path("a.md").read_text() == "old"
    assert [*Path().iterdir()] == [Path("a.md")]


def test_a_link_is_followed_and_a_device_is_written_to() -> None:
    Path("real").mkdir()
    Path("a.md").symlink_to("real/a.md")

    write_file("a.md", ["new"])
    write_file("/dev/null", ["new"])

    assert Path("a.md").is_symlink()
    assert Path("real/a.md").read_text() == "new"
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_what_cannot_be_encoded_is_escaped() -> None:
    write_file("a.md", ["\udcff é\n"])

    assert Path("a.md").read_bytes() == "\\udcff é\n".encode()


def test_a_dump_from_a_pipe_is_not_in_the_trace_and_that_is_said() -> None:
    job = SmallJob(1)
    job.op()
    command = [sys.executable, "-m", "forkpoint", "diagnose", "-", "--perfetto", "a.json"]

    done = subprocess.run(command, input=job.dump(0), capture_output=True, check=False)

    trace = json.loads(Path("a.json").read_text())
    assert (trace["traceEvents"], trace["otherData"]["not_read_again"]) == ([], "0")
    assert b"rank 0: not in the trace; save the dump to a file first" in done.stderr


@pytest.mark.parametrize("width", [80, 200])
def test_the_report_keeps_to_one_screen_and_its_width(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", str(DEMO), "--width", str(width)])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= width
    assert not any("\x1b" in line for line in lines)
