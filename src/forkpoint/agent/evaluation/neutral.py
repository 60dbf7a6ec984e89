"""A case without its name: the model under test must not see which case it is, neither in our paths nor in those of the job.

Recorded jobs ran, and left their dumps, in folders that bear the name of what was broken, and logs and stacks say so.
"""

import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from forkpoint.agent.case import Case, open_case
from forkpoint.agent.evaluation.known import KnownCase
from forkpoint.agent.similar import recorded
from forkpoint.agent.tool import Tool
from forkpoint.agent.tools.knowledge import similar_tool

_JOB = "job"
_INSTALLED = (b"site-packages", b"/lib/python")


@contextmanager
def open_neutral(known: KnownCase) -> Generator[Case]:
    """A copy, which is gone afterwards: a link would lead to the name."""
    with TemporaryDirectory(prefix="forkpoint-") as folder:
        evidence = shutil.copytree(known.capture, Path(folder) / "evidence")
        source = shutil.copytree(known.source, Path(folder) / "source") if known.source else None
        case = open_case([str(evidence)], [str(source)] if source else [])
        names = {known.name, known.fault, *(_folders_of_job(evidence, source) if source else ())} - {""}
        yield replace(case, name_inside=_without(names, case.name_inside))


def similar_without(known: KnownCase) -> Tool:
    """The `similar` tool without this case and without other runs of the same fault."""
    runs = {told.number for told in recorded() if known.fault and told.fault == known.fault}
    return similar_tool(without={known.name, *runs})


def _folders_of_job(evidence: Path, source: Path) -> set[str]:
    """Names of the folders in which the job's own files lay when it ran."""
    files = [re.escape(path.relative_to(source).as_posix()).encode() for path in source.rglob("*.py")]
    if not files:
        return set()
    own = re.compile(rb"((?:/[\w.@-]+)+)/(?:" + b"|".join(files) + rb")\b")
    texts = (path.read_bytes() for path in evidence.rglob("*") if path.is_file())
    folders = {found for text in texts for found in own.findall(text)}
    return {Path(f.decode()).name for f in folders if not any(place in f for place in _INSTALLED)}


def _without(names: set[str], before: Callable[[str], str]) -> Callable[[str], str]:
    """Takes folders of these names out of a text."""
    folder = re.compile(rf"(?<=/)(?:{'|'.join(map(re.escape, sorted(names)))})(?=[/\s\"']|$)")
    return lambda text: folder.sub(_JOB, before(text))
