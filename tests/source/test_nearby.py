"""Source that lies on this machine is used where its lines match the stacks, and only there."""

from pathlib import Path

from forkpoint.model.op import Frame
from forkpoint.source.nearby import find_source

PROGRAM = "def step():\n    reduce()\n\n\ndef main():\n    step()\n\n\nmain()\n"


def stack(folder: str, line: int = 2) -> tuple[Frame, ...]:
    return Frame("step", f"{folder}/train.py", line), Frame("main", f"{folder}/train.py", 6)


def written(folder: Path, text: str = PROGRAM) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(text)
    return folder


def test_source_at_the_path_that_stacks_name_is_used(tmp_path: Path) -> None:
    job = written(tmp_path / "job")

    assert find_source([stack(str(job))], []) == (str(job),)


def test_source_beside_the_evidence_is_used_though_the_job_ran_elsewhere(tmp_path: Path) -> None:
    source = written(tmp_path / "incident" / "source")
    dumps = tmp_path / "incident" / "dumps"
    dumps.mkdir()

    assert find_source([stack("/srv/elsewhere")], [str(dumps)]) == (str(source),)


def test_source_of_another_version_is_not_used(tmp_path: Path) -> None:
    job = written(tmp_path / "job", f"import os\n\n\n{PROGRAM}")

    assert find_source([stack(str(job))], []) == ()


def test_one_line_that_does_not_match_is_enough(tmp_path: Path) -> None:
    job = written(tmp_path / "job")

    assert find_source([stack(str(job)), stack(str(job), line=7)], []) == ()


def test_what_is_no_python_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text(PROGRAM)

    assert find_source([(Frame("step", str(tmp_path / "passwd"), 2),)], [str(tmp_path)]) == ()


def test_of_a_folder_with_too_many_files_only_those_of_the_stacks_are_read(tmp_path: Path) -> None:
    job = written(tmp_path / "job")
    for number in range(400):
        (job / f"other_{number}.py").touch()

    assert find_source([stack(str(job))], []) == (str(job / "train.py"),)
