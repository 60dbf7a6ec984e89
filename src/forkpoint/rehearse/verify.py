"""`--verify-fix`: applies the proposed patch to a copy and repeats the trial."""

import shutil
import subprocess
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from forkpoint.rehearse.model import Outcome, Result, Site, Trial, Verified
from forkpoint.rehearse.trial import Stage, run_trial
from forkpoint.rehearse.workspace import copy_folder, scratch_folder


def verify_fix(result: Result, stage: Stage) -> Result:
    """Repeats the trial with the first fix, if it is a patch; otherwise returns the result unchanged."""
    fixes = (result.verdict or {}).get("fixes", [])[:1]
    if result.outcome is not Outcome.PARTS or not fixes or not fixes[0].get("patch"):
        return result
    with scratch_folder() as folder:
        patched = folder / "patched"
        copy_folder(stage.origin, patched)
        if not apply_patch(fixes[0]["patch"], patched):
            return replace(
                result, verified=Verified(fixes[0]["title"], Outcome.NOT_REACHED, "the patch does not apply")
            )
        trial = _moved(result.trial, stage.origin, patched)
        again = run_trial(trial, replace(stage, origin=patched, keep=None))
    return replace(result, verified=Verified(fixes[0]["title"], again.outcome, again.says))


def apply_patch(patch: str, folder: Path) -> bool:
    git = shutil.which("git")
    if git is None:
        return False
    done = subprocess.run(  # noqa: S603 our own patch, on a copy
        [git, "apply", "-"],
        cwd=folder,
        input=patch.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _moved(trial: Trial, before: Path, after: Path) -> Trial:
    """The trial with its site at the line to which the patch moved it."""
    site = trial.target.site
    if site is None or not (before / site.file).is_file():
        return trial
    old, new = ((folder / site.file).read_text(errors="replace").splitlines() for folder in (before, after))
    moved = Site(site.file, moved_line(old, new, site.line), site.function)
    return replace(trial, target=replace(trial.target, site=moved))


def moved_line(old: list[str], new: list[str], line: int) -> int:
    """The new number of a line (from 1) after a change; inside a changed block, at the same offset."""
    for _, begin, end, new_begin, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if begin < line <= end:
            return min(new_begin + line - begin, max(new_end, new_begin + 1))
    return line
