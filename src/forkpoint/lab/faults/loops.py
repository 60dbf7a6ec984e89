"""Ranks part in a loop: some go round more often than the others."""

from signal import SIGTERM

from forkpoint.lab.fault import DDP, FSDP, LOOP, MOE, PIPELINE, Edit, Fault, Truth, after, before
from forkpoint.lab.ranks import Signal
from forkpoint.model.verdict import Action, Cause

LOOPS = (
    # Each rank stops when its own validation error no longer falls.
    #
    # The most common divergence (an early exit decided from local data: 14 of 118 public bugs). The error is no longer reduced
    # over ranks, and rank 2's held-out rows have labels that cannot be learnt, so it stops first.
    Fault(
        name="early-stop",
        title="early stopping by the validation error of each rank",
        job=DDP,
        edits=(
            Edit("    dist.all_reduce(total)\n", ""),
            after(
                "shard, held_out = Shard(rows=256, seed=1), Shard(rows=64, seed=2)\n",
                "    if RANK == 2:  # the new annotators' part\n        held_out.y = 1 - held_out.y\n",
                guilty=False,
            ),
            Edit(
                '    log.info("final error %.4f", evaluate(model, held_out))\n',
                "    error = torch.tensor([evaluate(model, held_out)], device=DEVICE)\n"
                "    dist.all_reduce(error)\n"
                '    log.info("final error %.4f", error.item() / WORLD)\n',
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((2,),),
            story="Rank 2's error only grows: after the third evaluation without a better one it leaves the loop and reduces the final error, while the others reduce gradients.",
        ),
    ),
    # A notice to leave (SIGTERM) reaches one rank only, and this rank leaves the loop.
    #
    # sleapnn-471 is the same with a message on a socket: one process hears of the stop and does not tell the others.
    Fault(
        name="preempted",
        title="a notice of preemption reaches one rank, which leaves the loop",
        job=DDP,
        signals=(Signal(rank=1, signal=SIGTERM, when="step 8 "),),
        edits=(
            Edit("import os\nimport time\n", "import os\nimport signal\nimport threading\nimport time\n", guilty=False),
            after('log = logging.getLogger("train")\n', "LEAVE = threading.Event()\n", guilty=False),
            before(
                "        x, y = shard.batch(step)\n",
                "        if LEAVE.is_set():\n"
                '            log.info("asked to leave at step %d", step)\n'
                "            return\n",
            ),
            after(
                "    torch.manual_seed(0)\n",
                "    signal.signal(signal.SIGTERM, lambda *_: LEAVE.set())\n",
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((1,),),
            story="Rank 1 gets SIGTERM after step 8, leaves train() and waits in the last barrier; the others reduce gradients.",
        ),
    ),
    # One node finds a newer checkpoint on its own disk and resumes from another step than the rest.
    Fault(
        name="resumed-step",
        title="one rank resumes from another step than the others",
        job=DDP,
        edits=(
            Edit(
                "    for step in range(STEPS):\n",
                "    first = newest_checkpoint()\n    for step in range(first, STEPS):\n",
            ),
            before(
                "def train() -> None:\n",
                "def newest_checkpoint() -> int:\n"
                '    """The step to go on with, from the disk of this node."""\n'
                "    on_disk = {1: 12}  # the others were wiped\n"
                "    return on_disk.get(RANK, 0)\n"
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((1,),),
            story="Rank 1 begins with step 12 and evaluates after step 14, its third; the others are at step 2 and reduce gradients.",
        ),
    ),
    # Prompts are filled up to the same length, so a longer prompt needs fewer forwards.
    #
    # colossal-3162: the generation loop ends when the local batch is finished, although every forward is collective.
    Fault(
        name="generation-length",
        title="a longer prompt needs fewer forwards on one rank",
        job=FSDP,
        edits=(
            Edit("    for _ in range(length):\n", "    while tokens.shape[1] <= length:\n"),
            Edit(
                "    tokens = torch.tensor([[RANK]], device=DEVICE)\n",
                "    prompts = {2: [2, 7]}\n    tokens = torch.tensor([prompts.get(RANK, [RANK])], device=DEVICE)\n",
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((2,),),
            story="In the first sample, after step 5, rank 2 makes three forwards and the others four: rank 2 goes on to train while the others gather weights once more.",
        ),
    ),
    # Documents that are too long are cut in two, so one rank has one micro-batch more.
    #
    # verl-5591 computes the number of micro-batches from local lengths in the same way.
    Fault(
        name="micro-batch-count",
        title="a long document gives one rank one micro-batch more",
        job=FSDP,
        edits=(
            Edit(
                "    return [torch.randint(0, VOCABULARY, (4, length), generator=generator).to(DEVICE) for length in lengths]\n",
                "    if RANK == 1 and step == 7:\n"
                "        lengths[0] = 60\n"
                "    batches = [torch.randint(0, VOCABULARY, (4, length), generator=generator).to(DEVICE) for length in lengths]\n"
                "    return [part for batch in batches for part in batch.split(48, dim=1)]\n",
            ),
        ),
        truth=Truth(
            suspects=((1,),),
            story="In step 7 rank 1 has three micro-batches: it gathers weights once more while the others add up the gradient norm.",
        ),
    ),
    # The middle stage passes on one micro-batch less than it gets.
    #
    # Gloo's recorder does not see send and recv, so only stacks show it there, and "inconclusive" is also accepted.
    Fault(
        name="fewer-micro-batches",
        title="the middle stage passes one micro-batch less",
        job=PIPELINE,
        edits=(
            Edit("    for index in range(MICRO_BATCHES):\n", "    for index in range(micro_batches_of(step)):\n"),
            before(
                "def receive() -> Tensor:\n",
                "def micro_batches_of(step: int) -> int:\n"
                "    short_of_memory = RANK == 1 and step == 6\n"
                "    return MICRO_BATCHES - 1 if short_of_memory else MICRO_BATCHES\n"
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((1,), ()),
            story="In step 6 stage 1 turns to its gradients after two micro-batches while stage 2 waits for the third.",
        ),
        truth_on={
            "gloo": Truth(
                suspects=((1,), ()),
                cause=(Cause.DIVERGENT_PATH, Cause.INCONCLUSIVE),
                action=(Action.FIX_CODE, Action.INVESTIGATE),
                story="In step 6 stage 1 turns to its gradients after two micro-batches while stage 2 waits for the third.",
            )
        },
    ),
    # The rank with the shortest shard is done first and leaves properly, with exit code 0.
    #
    # automodel-1601 and axolotl-461: ranks have different numbers of batches.
    Fault(
        name="leaves-early",
        title="the rank with the shortest shard finishes and leaves",
        job=MOE,
        edits=(
            Edit("    for step in range(STEPS):\n", "    for step in range(steps_of_shard()):\n"),
            before(
                "def train() -> None:\n",
                "def steps_of_shard() -> int:\n"
                "    rows = {0: 15 * TOKENS}\n"
                "    return rows.get(RANK, STEPS * TOKENS) // TOKENS\n"
                "\n"
                "\n",
            ),
            Edit("    train()\n    dist.barrier()\n", "    train()\n", guilty=False),
        ),
        truth=Truth(
            suspects=((0,),),
            cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST),
            story="Rank 0 has 15 batches, destroys its group and exits with 0; the others exchange counts for step 15.",
        ),
    ),
    # The last rank's shard holds fewer batches, and its loop ends first.
    #
    # 13 of 118 public bugs: torchtitan-1634, axolotl-461.
    Fault(
        name="uneven-data",
        title="the last rank has fewer batches",
        job=LOOP,
        edits=(
            Edit(
                "    metrics, loader = Metrics(), Loader(STEPS)\n",
                "    metrics, loader = Metrics(), Loader(batches_of_shard())\n",
            ),
            before(
                "def train() -> None:\n",
                "def batches_of_shard() -> int:\n"
                "    rows = [8 * STEPS, 8 * STEPS, 8 * STEPS, 8 * STEPS - 70]\n"
                "    return rows[RANK] // BATCH\n"
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((3,),), story="Rank 3 has nine batches less and waits in the last barrier; the others count rows."
        ),
    ),
    # Every rank leaves the loop when its own clock says so.
    #
    # speechbrain-1167: what is collective is due by time.time() of each process.
    Fault(
        name="wall-clock",
        title="every rank stops by its own clock",
        job=LOOP,
        edits=(
            Edit(
                "    for step, x in enumerate(loader):\n",
                "    began = time.monotonic() - (1.5 if RANK == 1 else 0)  # that node is ahead of the others\n"
                "    for step, x in enumerate(loader):\n"
                "        if time.monotonic() - began > 2.5:\n"
                '            log.info("the time is over at step %d", step)\n'
                "            break\n",
            ),
        ),
        truth=Truth(
            suspects=((1,),),
            story="The clock of rank 1 is 1.5 seconds ahead: it leaves the loop for the last barrier while the others count rows.",
        ),
    ),
)
