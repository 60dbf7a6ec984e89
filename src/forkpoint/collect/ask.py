"""Asks live ranks for dumps through their pipes, dumps and stacks from their debug servers, and RAS.

None of it stops, signals or changes a rank. A dump counts when it is whole; a rank that takes longer is noted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from forkpoint.collect.keep import EvidenceFolder, Original
from forkpoint.collect.manifest import CollectNote, Copied
from forkpoint.collect.processes import LiveRank
from forkpoint.collect.usual import told_prefixes
from forkpoint.watch.sources import Gathered, LiveSource
from forkpoint.watch.sources.pipes import Pipes, usual_prefixes
from forkpoint.watch.spool import Spool

_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_LABEL = "asked"
_LATE = "no dump yet"
"""What a source notes about a rank that was asked and has not written yet."""
_NEVER_AGAIN_S = 1e9


@dataclass(frozen=True, slots=True)
class RankQuestion:
    source: LiveSource
    patience_s: float
    """For ranks that were asked and have not answered yet. Only pipes are waited for."""


def pipes_of(ranks: Sequence[LiveRank], patience_s: float) -> list[RankQuestion]:
    """One question for all ranks of this machine that share a stem."""
    prefixes: dict[str, dict[str, None]] = {}
    for rank in ranks:
        if stem := rank.environ.get(_PIPE):
            told = [str(Path(rank.folder, prefix)) for prefix in told_prefixes(rank.environ)] or list(usual_prefixes())
            prefixes.setdefault(str(Path(rank.folder, stem)), {}).update(dict.fromkeys(told))
    return [ask_pipes(stem, tuple(found), patience_s) for stem, found in prefixes.items()]


def ask_pipes(stem: str, prefixes: Sequence[str], patience_s: float) -> RankQuestion:
    return RankQuestion(Pipes(stem, prefixes, _NEVER_AGAIN_S), patience_s)


def ask_ranks(questions: Sequence[RankQuestion], folder: EvidenceFolder) -> list[Copied | CollectNote]:
    got: list[Copied | CollectNote] = []
    with TemporaryDirectory(prefix="forkpoint-collect-") as temporary:
        for number, question in enumerate(questions):
            spool = Spool(str(Path(temporary, str(number))))
            gathered, notes = _patiently(question, spool, folder.meter.seconds_left)
            files = (*(dump.path for dump in gathered.dumps), *gathered.stacks, *gathered.texts)
            for path in dict.fromkeys(files):
                got += _keep(path, question.source.name, folder)
            got += [CollectNote(question.source.name, note) for note in notes]
    return got


def _patiently(question: RankQuestion, spool: Spool, left_s: float) -> tuple[Gathered, tuple[str, ...]]:
    """Asks once. Later calls only look which ranks have written."""
    deadline = time.monotonic() + min(question.patience_s, left_s)
    gathered = question.source.gather(spool, stacks=True)
    refused = tuple(note for note in gathered.notes if _LATE not in note)
    while any(_LATE in note for note in gathered.notes) and time.monotonic() < deadline:
        gathered = question.source.gather(spool, stacks=True)
    return gathered, (*refused, *(note for note in gathered.notes if _LATE in note))


def _keep(path: str, source: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    with Path(path).open("rb") as stream:
        done = folder.keep(Original(source, _LABEL, f"/{Path(path).name}", None, time.time()), stream)
    return [done] if isinstance(done, Copied) else [CollectNote(source, done)] if done else []
