"""Ranks part at a branch: some enter a call that the others skip."""

from forkpoint.lab.fault import DDP, FSDP, LOOP, MESH, MOE, PIPELINE, Edit, Fault, Truth, after, before
from forkpoint.model.verdict import Action, Cause

BRANCHES = (
    # A batch without rare rows does not use one head, so DDP waits for gradients that never come on that rank.
    #
    # Ten public bugs are of this kind (a mask head, a vision tower, an expert that is not in the graph on one rank): detectron2-syncbn,
    # verl-3734, swift-4889.
    Fault(
        name="unused-parameters",
        title="one rank's batch does not use a head of the model",
        job=DDP,
        edits=(
            before(
                "        self.y = (self.x.sum(1) > 0).long()\n",
                "        self.x[::4, 0] = 10  # every fourth row is of a rare kind\n"
                "        if RANK == 3 and rows > 7 * BATCH:\n"
                "            self.x[7 * BATCH : 8 * BATCH, 0] = 0\n",
                guilty=False,
            ),
            Edit(
                "        return self.label(features) + self.rare(features)\n",
                "        scores = self.label(features)\n"
                "        if (x[:, 0] == 10).any():\n"
                "            scores = scores + self.rare(features)\n"
                "        return scores\n",
            ),
        ),
        truth=Truth(
            suspects=((3,),),
            cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST),
            story="The eighth batch of rank 3 has no rare row: its reducer never starts the reduce of step 7, and its next forward refuses to go on. The others wait in the reduce of step 7.",
        ),
    ),
    # A rank whose loss is not finite skips the step, and with it the reduce of the gradients.
    #
    # DDP's reduces all look alike: the rank is one behind, and is seen only at the next call of another size. Gradients of
    # different steps are added until then.
    Fault(
        name="nan-skip",
        title="a step with a non-finite loss is skipped by the rank that has it",
        job=DDP,
        edits=(
            after(
                "        x, y = shard.batch(step)\n",
                "        if RANK == 1 and step == 6:  # a broken record\n            x = x / 0\n",
                guilty=False,
            ),
            before(
                "        optimizer.zero_grad()\n",
                "        if not loss.isfinite():\n"
                '            log.warning("step %d: loss is not finite, skipped", step)\n'
                "            continue\n",
            ),
        ),
        truth=Truth(
            suspects=((1,),),
            story="Rank 1 skips the backward of step 6. Its later reduces pair with those of the step before, until the evaluation after step 9, which the others reach while rank 1 still reduces gradients.",
        ),
    ),
    # The first rank evaluates once more when its own loss looks promising, and evaluating reduces.
    #
    # As in lightning-6410 and openclip-1121: what only the main process does contains a collective.
    Fault(
        name="extra-evaluation",
        title="rank 0 evaluates once more when its own loss is low",
        job=DDP,
        edits=(
            before(
                "        if stale >= PATIENCE:\n",
                "        if RANK == 0 and loss.item() < 0.6:\n"
                '            log.info("promising: error %.4f", evaluate(model, held_out))\n',
            ),
        ),
        truth=Truth(
            suspects=((0,),),
            story="As soon as rank 0's loss is under 0.6 it reduces two numbers in evaluate() while the others reduce the gradients of the next step.",
        ),
    ),
    # The norm of a sharded weight is worked out on rank 0 only, for its log.
    #
    # full_tensor() hides a collective, as state_dict() and torchmetrics' compute() do (torchmetrics-938, lightning-16541).
    Fault(
        name="full-tensor-on-rank-0",
        title="full_tensor() under a condition that only rank 0 meets",
        job=FSDP,
        edits=(Edit("        if step % NORM_EVERY == 0:\n", "        if step % NORM_EVERY == 0 and RANK == 0:\n"),),
        truth=Truth(
            suspects=((0,),),
            story="After step 0 rank 0 gathers the weight of the head while the others gather the weights of the next forward.",
        ),
    ),
    # Layers are left out at random, and every rank draws for itself.
    #
    # A block that is left out is not gathered. pytorch-147561 is a compiler that decided for each rank alone.
    Fault(
        name="layer-drop",
        title="each rank drops layers by its own dice",
        job=FSDP,
        edits=(
            after(
                "        for block in self.blocks:\n",
                "            if torch.rand((), generator=self.dice) < 0.05:\n                continue\n",
            ),
            after(
                "        self.head = nn.Linear(width, VOCABULARY)\n",
                "        self.dice = torch.Generator().manual_seed(40 + RANK)\n",
            ),
        ),
        truth=Truth(
            suspects=((0,),),
            story="With these seeds rank 0 is the first to leave out a block, the second of three, in its seventh forward (step 3): it gathers the weights of the third while the others gather those of the second.",
        ),
    ),
    # An exception on one rank leads through `finally` into a barrier that the others reach much later.
    #
    # olmocore-380: the failing rank tears the group down and blocks there, and its exception is not seen until the timeout.
    Fault(
        name="collective-in-finally",
        title="an exception on one rank runs into the barrier of a finally",
        job=MESH,
        edits=(
            after(
                '        x = rows(step, mesh.get_local_rank("dp"))\n',
                '        if RANK == 2 and step == 10:\n            raise ValueError("row 80 has no label")\n',
            ),
            Edit(
                '    train(init_device_mesh(DEVICE, (WORLD // TP, TP), mesh_dim_names=("dp", "tp")))\n'
                "    dist.barrier()\n"
                "    dist.destroy_process_group()\n",
                "    try:\n"
                '        train(init_device_mesh(DEVICE, (WORLD // TP, TP), mesh_dim_names=("dp", "tp")))\n'
                "    finally:\n"
                "        dist.barrier()\n"
                "        dist.destroy_process_group()\n",
            ),
        ),
        truth=Truth(
            suspects=((2,),),
            cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST),
            story="In step 10 rank 2 raises and waits in the barrier of the finally. Rank 3 waits for it in tp, ranks 0 and 1 run into the dp reduce and wait there.",
        ),
    ),
    # A sum over the whole world is made by the first rank of each `tp` group only.
    #
    # slime-393, verl-5895 and megatron-textgen: a collective on a larger group than that of the ranks that come to it.
    Fault(
        name="half-the-world",
        title="an all_reduce of the world is called by the first tp ranks only",
        job=MESH,
        edits=(
            Edit(
                "        if step % LOG_EVERY == 0:\n",
                '        if step % LOG_EVERY == 0 and mesh.get_local_rank("tp") == 0:\n',
            ),
        ),
        truth=Truth(
            suspects=((), (0, 2)),
            story="After step 0 ranks 0 and 2 add up the loss over the world; ranks 1 and 3 go on to the next forward. Two against two: only the source says which two are wrong.",
        ),
    ),
    # The first stage waits for a report that the last stage does not send.
    #
    # Gloo's recorder does not see send and recv, so only stacks show it there, and "inconclusive" is also accepted.
    Fault(
        name="unmatched-recv",
        title="the first stage waits for a message that nobody sends",
        job=PIPELINE,
        edits=(
            after(
                '        log.info("step %d done", step)\n',
                "        if FIRST and step == 7:\n            wait_for_report()\n",
            ),
            before(
                "def train() -> None:\n",
                "def wait_for_report() -> None:\n"
                "    report = torch.empty(4, device=DEVICE)\n"
                "    dist.recv(report, src=WORLD - 1)\n"
                '    log.info("report %s", report.tolist())\n'
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((0,), ()),
            story="After step 7 stage 0 waits for the last stage, which waits for the second, which waits for the first.",
        ),
        truth_on={
            "gloo": Truth(
                suspects=((0,), ()),
                cause=(Cause.DIVERGENT_PATH, Cause.INCONCLUSIVE),
                action=(Action.FIX_CODE, Action.INVESTIGATE),
                story="After step 7 stage 0 waits for the last stage, which waits for the second, which waits for the first.",
            )
        },
    ),
    # A rank that cannot read its tokens counts the failure with an all_reduce in the handler, which only it enters.
    #
    # automodel-2468 and fairseq-oom: an exception that is handled by one rank alone.
    Fault(
        name="collective-in-except",
        title="a failure is counted by an all_reduce in the except branch",
        job=MOE,
        edits=(
            Edit(
                "        x = tokens_of(step)\n",
                "        try:\n"
                "            x = checked(tokens_of(step), step)\n"
                "        except ValueError:\n"
                "            failures = torch.ones(1, device=DEVICE)\n"
                "            dist.all_reduce(failures)\n"
                '            log.warning("step %d: unreadable on %d ranks", step, failures.item())\n'
                "            continue\n",
            ),
            before(
                "def train() -> None:\n",
                "def checked(x: Tensor, step: int) -> Tensor:\n"
                "    if RANK == 2 and step == 8:\n"
                '        raise ValueError("tokens are cut off")\n'
                "    return x\n"
                "\n"
                "\n",
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((2,),), story="In step 8 rank 2 reduces one number in its handler; the others exchange counts."
        ),
    ),
    # The metric is computed for the log of rank 0 only, and computing it gathers.
    #
    # torchmetrics-938 and lightning-16541.
    Fault(
        name="metric-on-rank-0",
        title="a metric that gathers is computed on rank 0 only",
        job=LOOP,
        edits=(
            Edit(
                "        if step % REPORT_EVERY == REPORT_EVERY - 1:\n",
                "        if step % REPORT_EVERY == REPORT_EVERY - 1 and RANK == 0:\n",
            ),
        ),
        truth=Truth(
            suspects=((0,),), story="After step 4 rank 0 gathers the losses; the others count the rows of step 5."
        ),
    ),
    # An exception between two collectives is caught and forgotten, and the rank goes on with its next batch.
    #
    # 8 of 118 public bugs: automodel-3261, fairseq-oom.
    Fault(
        name="swallowed-exception",
        title="an exception between two collectives is swallowed",
        job=LOOP,
        edits=(
            Edit(
                "        rows = add_up(len(x), counts)\n        reduce_gradients(model)\n",
                "        rows = add_up(len(x), counts)\n"
                "        try:\n"
                "            check_batch(x, step)\n"
                "        except ValueError:\n"
                "            continue\n"
                "        reduce_gradients(model)\n",
            ),
            before(
                "def train() -> None:\n",
                "def check_batch(x: Tensor, step: int) -> None:\n"
                "    if RANK == 2 and step == 11:\n"
                '        raise ValueError(f"{len(x)} rows, none with a label")\n'
                "\n"
                "\n",
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((2,),),
            story="In step 11 rank 2 counts its rows and leaves the step; it counts the rows of step 12 while the others reduce gradients.",
        ),
    ),
)
