"""Where ops failed of which nothing is left pending: gloo takes a failed op off its list like a done one."""

from forkpoint.diverge.build import build_divergence
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.incident import Incident


def find_last_slot(kind: PartingKind, gone: tuple[int, ...], incident: Incident) -> Divergence | None:
    """The newest slot of all, if every member that dumped stands there; `gone` ranks must not be among them."""
    lasts = [(g, t.last) for g in incident.timeline.groups for r in g.traces if (t := g.track(r))]
    if not lasts:
        return None
    group = max(lasts, key=lambda item: item[1].created_ns)[0]
    seqs = {t.last_seq for r in group.traces if (t := group.track(r))}
    if len(seqs) != 1 or any(r in group.traces for r in gone):
        return None
    (seq,) = seqs
    others = tuple(group.traces)
    return build_divergence(kind, group, seq, incident.timeline, sides=(others,), hang=seq, unknown=gone)
