"""Descriptions of parts of a verdict, shared by several reports. Not escaped: each report does that itself."""

import re
from collections import Counter

from forkpoint.model.incident import Cohort, Divergence, Role
from forkpoint.model.verdict import Coverage, Evidence, Moment, Verdict
from forkpoint.model.world import name_ranks

_MAX_SIZES = 2
_MAX_RING = 6


def count_of(number: int, what: str) -> str:
    """`1 log`, `2 logs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def describe_coverage(coverage: Coverage) -> str:
    given = ((coverage.dumps, "dump"), (coverage.logs, "log"), (coverage.stacks, "stack"))
    return f"{count_of(coverage.ranks, 'rank')}: {', '.join(count_of(*one) for one in given)}"


def describe_slot(divergence: Divergence) -> str:
    group = divergence.group
    name = f"{group} (group {group.name}, {count_of(len(group.ranks), 'rank')})"
    kind = divergence.kind
    if divergence.channel is not None:
        kind = f"{kind} {divergence.channel[0]} -> {divergence.channel[1]}"
    seq = "seq not recorded" if divergence.seq is None else f"seq {divergence.seq}"
    later = ""
    if divergence.first_visible_seq not in {None, divergence.seq}:
        later += f", visible from seq {divergence.first_visible_seq}"
    if divergence.hang_seq not in {None, divergence.seq}:
        later += f", waiting in seq {divergence.hang_seq}"
    if divergence.shift is not None and divergence.seq is not None and len(divergence.odd) == 1:
        by, here = divergence.shift.by, divergence.seq
        own, theirs = (here, here + by) if by > 0 else (here - by, here)
        later += f"; rank {divergence.odd[0]}'s seq {own} is its peers' seq {theirs}"
    if divergence.cycle:
        ring = [*divergence.cycle[:_MAX_RING], *(["..."] if len(divergence.cycle) > _MAX_RING else [])]
        later += f", waiting in a ring: {' -> '.join(map(str, [*ring, divergence.cycle[0]]))}"
    return f"{name}, {kind} {seq}{later}"


def describe_cohort(cohort: Cohort) -> str:
    if cohort.op is None and cohort.role is Role.SILENT:
        return cohort.where or "not known"
    if cohort.op is None and cohort.role is Role.WAITING:
        return cohort.where or "in a call that is not recorded"
    words = [cohort.op or "issued nothing here;"]
    if cohort.sizes:
        words += [str(list(size)) for size in cohort.sizes[:_MAX_SIZES]]
        hidden = len(cohort.sizes) - _MAX_SIZES
        words += [f"+{hidden}"] if hidden > 0 else []
    words += sorted(set(cohort.dtypes))[:2]
    if cohort.state is not None:
        words.append(f"({cohort.state})")
    if cohort.where is not None:
        words.append(cohort.where)
    return " ".join(words)


def suspects_first(verdict: Verdict) -> list[Cohort]:
    """The cohorts with suspects first: readers look for them, and only a few cohorts fit."""
    suspects = frozenset(verdict.suspects)
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    return sorted(cohorts, key=lambda cohort: suspects.isdisjoint(cohort.ranks))


def short_names(verdict: Verdict) -> dict[str, str]:
    """For each file that the verdict cites or sets aside, the shortest end of its path that is unique among them."""
    files = {item.file for item in verdict.evidence} | {one.file for one in verdict.coverage.set_aside}
    parts = {file: file.split("/") for file in files}
    names: dict[str, str] = {}
    for depth in range(1, max(map(len, parts.values()), default=0) + 1):
        ends = {file: "/".join(parts[file][-depth:]) for file in files - names.keys()}
        shared = Counter(ends.values())
        names.update({file: end for file, end in ends.items() if shared[end] == 1 or depth >= len(parts[file])})
    return names


def cited(verdict: Verdict) -> list[tuple[str, Evidence]]:
    """Evidence numbered as in the JSON; that of suspects first."""
    suspects = frozenset(verdict.suspects)
    numbered = [(f"E{number}", item) for number, item in enumerate(verdict.evidence, start=1)]
    return sorted(numbered, key=lambda pair: pair[1].rank not in suspects)


def describe_moment(moment: Moment) -> str:
    printed = (moment.when or "").rpartition("T")[2]
    when = moment.utc[11:] if moment.utc else f"{printed} (own clock)"
    by = "by " if moment.bound else ""
    who = f"{name_ranks(moment.ranks, max_ranges=2)} " if moment.ranks else f"{moment.host}: " if moment.host else ""
    says = re.sub(r"^was ", "were ", moment.says) if len(moment.ranks) > 1 else moment.says
    return f"{by}{when} {who}{says}"


def describe_evidence(item: Evidence, name: str) -> str:
    """`rank 4, log_rank_4.txt:8: KeyError: 'fr'`, which terminals and editors open at the line."""
    rank = "" if item.rank is None else f"rank {item.rank}, "
    kind, _, number = item.where.partition(" ")
    place = f"{name}:{number}" if kind == "line" else f"{name} {item.where}"
    return f"{rank}{place}: {item.says}"
