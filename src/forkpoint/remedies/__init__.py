"""Forks -> probes that would confirm them, and fixes: as patches where that is safe, else in words.

Probes are in `probes/`, fixes in `fixes/`, one per file and listed by hand. A patch is made from the bytes of the file,
applies with `git apply` in the source root, and leaves a file that parses. Patches are independent: apply one at a time.
"""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.model.incident import Divergence
from forkpoint.model.verdict import Cause, Fix, Probe, Verdict
from forkpoint.remedies.fixes import offer_fixes
from forkpoint.remedies.probes import offer_probes
from forkpoint.remedies.scene import Scene
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge.fork import Fork

__all__ = ["attach_remedies", "remedies"]


def attach_remedies(verdict: Verdict, forks: Sequence[Fork], analysis: Analysis, roots: Sequence[str]) -> Verdict:
    """Put patches before the advice of the first finding. An undecided verdict gets none: the job may be correct."""
    if verdict.cause is Cause.INCONCLUSIVE or not verdict.findings:
        return verdict
    probes, fixes = remedies(forks, verdict.divergence, analysis, roots)
    best = verdict.findings[0]
    best = replace(best, probes=(*probes, *best.probes), fixes=(*fixes, *best.fixes))
    return replace(verdict, findings=(best, *verdict.findings[1:]))


def remedies(
    forks: Sequence[Fork], divergence: Divergence | None, analysis: Analysis, roots: Sequence[str]
) -> tuple[tuple[Probe, ...], tuple[Fix, ...]]:
    """`forks`: best first. `roots`: the folders or files that the program was read from."""
    if not forks:
        return (), ()
    scene = Scene(divergence, analysis, tuple(roots))
    return offer_probes(forks, scene), offer_fixes(forks, scene)
