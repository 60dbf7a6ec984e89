"""The perturbations, one file each, listed in the order in which they are tried. The hash seed comes last: its rank must be
a new process, which takes as long as a few other trials.
"""

from forkpoint.rehearse.perturbation import Perturbation
from forkpoint.rehearse.perturbations import (
    another_hash_seed,
    another_random_seed,
    another_value,
    clock_differs,
    empty_mask,
    exception_in_try,
    file_differs,
    late_thread,
    not_a_number,
    not_ready,
    older_checkpoint,
    one_batch_fewer,
    one_batch_more,
    one_sample_fewer,
    out_of_memory,
    short_batch,
    signal_to_one,
    slow_rank,
    small_samples,
    worker_dies,
    write_fails,
)

PERTURBATIONS: tuple[Perturbation, ...] = (
    one_batch_fewer.PERTURBATION,
    one_sample_fewer.PERTURBATION,
    exception_in_try.PERTURBATION,
    another_value.PERTURBATION,
    not_a_number.PERTURBATION,
    empty_mask.PERTURBATION,
    file_differs.PERTURBATION,
    out_of_memory.PERTURBATION,
    write_fails.PERTURBATION,
    clock_differs.PERTURBATION,
    signal_to_one.PERTURBATION,
    not_ready.PERTURBATION,
    late_thread.PERTURBATION,
    short_batch.PERTURBATION,
    small_samples.PERTURBATION,
    older_checkpoint.PERTURBATION,
    another_random_seed.PERTURBATION,
    worker_dies.PERTURBATION,
    slow_rank.PERTURBATION,
    one_batch_more.PERTURBATION,
    another_hash_seed.PERTURBATION,
)


def find_perturbation(kind: str) -> Perturbation:
    return next(found for found in PERTURBATIONS if found.kind == kind)
