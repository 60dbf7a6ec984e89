"""The perturbations, by subject, listed in the order in which they are tried. The hash seed comes last: its rank must be a new
process, which takes as long as a few other trials.
"""

from forkpoint.rehearse.perturbation import Disturbance
from forkpoint.rehearse.perturbations.batches import OneBatchFewer, OneBatchMore, ShortBatch
from forkpoint.rehearse.perturbations.failures import ExceptionInTry, OutOfMemory, WorkerDies
from forkpoint.rehearse.perturbations.files import FileDiffers, NoRoom, OlderCheckpoint, WriteFails
from forkpoint.rehearse.perturbations.samples import OneSampleFewer, SmallSamples
from forkpoint.rehearse.perturbations.timing import ClockDiffers, LateThread, NotReady, SignalToOne, SlowRank
from forkpoint.rehearse.perturbations.values import (
    AnotherHashSeed,
    AnotherRandomSeed,
    AnotherValue,
    EmptyMask,
    NotANumber,
)

PERTURBATIONS: tuple[type[Disturbance], ...] = (
    OneBatchFewer,
    OneSampleFewer,
    ExceptionInTry,
    AnotherValue,
    NotANumber,
    EmptyMask,
    FileDiffers,
    OutOfMemory,
    WriteFails,
    NoRoom,
    ClockDiffers,
    SignalToOne,
    NotReady,
    LateThread,
    ShortBatch,
    SmallSamples,
    OlderCheckpoint,
    AnotherRandomSeed,
    WorkerDies,
    SlowRank,
    OneBatchMore,
    AnotherHashSeed,
)


def find_perturbation(kind: str) -> type[Disturbance]:
    return next(found for found in PERTURBATIONS if found.kind == kind)
