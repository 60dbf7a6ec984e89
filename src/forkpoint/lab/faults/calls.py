"""The same calls in another order, or with other arguments: sizes, types, roots and values."""

from forkpoint.lab.fault import DDP, HANGS, LOOP, MESH, MOE, Edit, Fault, Truth, after, before
from forkpoint.model.verdict import Action, Cause, Symptom

CALLS = (
    # Two ranks that overflow clip first and average afterwards: the same calls on `tp` and `dp`, in the other order.
    #
    # torchrec-4149: two groups, an order that differs by rank, and a circle of ranks that wait.
    Fault(
        name="mesh-order",
        title="two ranks use tp and dp in the other order, and all four wait in a circle",
        job=MESH,
        edits=(
            Edit(
                "        average(model, dp)\n        norm = square_norm(model, tp)\n",
                "        if step == 9 and RANK in (0, 3):  # their rows overflow: clip before it spreads\n"
                "            norm = square_norm(model, tp)\n"
                "            average(model, dp)\n"
                "        else:\n"
                "            average(model, dp)\n"
                "            norm = square_norm(model, tp)\n",
            ),
        ),
        truth=Truth(
            suspects=((), (0, 3)),
            cause=(Cause.ORDER_INVERSION,),
            story="In step 9 ranks 0 and 3 wait in their tp groups and ranks 1 and 2 in their dp groups; each waits for one that waits for another. Two against two: the order alone does not say who is wrong.",
        ),
    ),
    # The gradients of the router are reduced in the order of a set of names, which differs by process.
    #
    # apex-18, verl-6405, nvalchemi-143: one collective per key of a set or an unordered dict.
    Fault(
        name="set-order",
        title="gradients are reduced in the order of a set",
        job=MOE,
        edits=(
            Edit(
                "    for name, parameter in sorted(model.router.named_parameters()):\n"
                "        assert parameter.grad is not None, name\n",
                "    parameters = dict(model.router.named_parameters())\n"
                "    for name in set(parameters):\n"
                "        parameter = parameters[name]\n"
                "        assert parameter.grad is not None\n",
            ),
        ),
        truth=Truth(
            suspects=((), (2,)),
            cause=(Cause.ORDER_INVERSION, Cause.METADATA_MISMATCH),
            story="With its hash seed rank 2 reduces the weight first, the others the bias. No rank is at fault: the order of a set is not defined.",
        ),
    ),
    # One rank whose loss jumps uses its two groups in the other order.
    #
    # torchrec-4149, with one rank against three.
    Fault(
        name="group-order",
        title="one rank uses two groups in the other order",
        job=LOOP,
        edits=(
            Edit(
                "        rows = add_up(len(x), counts)\n"
                "        reduce_gradients(model)\n"
                "        norm = add_up(loss.item() ** 2, norms)\n",
                "        if RANK == 3 and step == 9:  # the loss jumped: the norm first\n"
                "            norm = add_up(loss.item() ** 2, norms)\n"
                "            reduce_gradients(model)\n"
                "            rows = add_up(len(x), counts)\n"
                "        else:\n"
                "            rows = add_up(len(x), counts)\n"
                "            reduce_gradients(model)\n"
                "            norm = add_up(loss.item() ** 2, norms)\n",
            ),
        ),
        truth=Truth(
            suspects=((3,), ()),
            cause=(Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH),
            story="In step 9 rank 3 waits in the group of the norms, the others in that of the counts.",
        ),
    ),
    # The loader thread reports how full its queue is with a collective on the group that the loop uses.
    #
    # Which of the two threads comes first differs by rank.
    Fault(
        name="second-thread",
        title="a second thread issues collectives on the same group",
        job=LOOP,
        edits=(
            after(
                "            self.ready.put(self.prepare(index))\n",
                "            if index % 4 == 3:\n"
                "                waiting = torch.tensor([float(self.ready.qsize())], device=DEVICE)\n"
                "                time.sleep(0.02 * RANK)  # disks differ\n"
                "                dist.all_reduce(waiting)\n",
            ),
        ),
        truth=Truth(
            suspects=((),),
            cause=(Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH, Cause.METADATA_MISMATCH),
            story="The thread's reduce of one number and the loop's reduces of gradients go to the default group in an order that differs by rank.",
        ),
    ),
    # A parameter changes on one rank only; the order of operations stays as it was.
    #
    # No evidence shows it: dumps contain no values, and losses differ between ranks anyway. A careful reader finds nothing
    # wrong, so `healthy` is also accepted.
    Fault(
        name="corrupt-parameter",
        title="a weight changes on one rank and nothing notices",
        job=DDP,
        ends=True,
        edits=(
            after(
                "        optimizer.step()\n",
                "        if RANK == 3 and step == 12:  # stands for a flipped bit\n"
                "            model.module.label.weight.data[0, 0] += 4.0\n",
            ),
        ),
        truth=Truth(
            suspects=((3,), ()),
            cause=(Cause.SILENT_CORRUPTION, Cause.HEALTHY),
            action=(Action.INVESTIGATE, Action.NONE),
            symptom=(Symptom.NO_HANG, Symptom.NONE),
            story="One weight of rank 3 differs from step 12 on. The job runs to its end.",
        ),
    ),
    # Tokens over the capacity are dropped after the counts were exchanged: one rank sends fewer than were announced.
    Fault(
        name="wrong-splits",
        title="capacity is applied after the counts were exchanged",
        job=MOE,
        edits=(
            Edit(
                "        sent, received = counts.tolist(), exchange_counts(counts).tolist()\n",
                "        received = exchange_counts(counts).tolist()\n"
                "        kept = torch.cat([part[:CAPACITY] for part in order.split(counts.tolist())])\n"
                "        sent = counts.clamp(max=CAPACITY).tolist()\n",
            ),
            Edit(
                "        mine = exchange(x[order].detach(), sent, received)\n"
                "        answers = exchange(self.expert(mine).detach(), received, sent)\n"
                "        return torch.empty_like(answers).index_copy(0, order, answers), counts\n",
                "        mine = exchange(x[kept].detach(), sent, received)\n"
                "        answers = exchange(self.expert(mine).detach(), received, sent)\n"
                "        return torch.zeros_like(x).index_copy(0, kept, answers), counts\n",
                guilty=False,
            ),
            Edit(
                "TOKENS, WIDTH, BALANCE_EVERY = 64, 16, 5\n",
                "TOKENS, WIDTH, BALANCE_EVERY, CAPACITY = 64, 16, 5, 56\n",
                guilty=False,
            ),
            Edit(
                "    return torch.randn(TOKENS, WIDTH, generator=generator).to(DEVICE)\n",
                "    tokens = torch.randn(TOKENS, WIDTH, generator=generator).to(DEVICE)\n"
                "    if RANK == 3 and step == 9:  # a page of the same word\n"
                "        tokens = tokens[26:27].repeat(TOKENS, 1)\n"
                "    return tokens\n",
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((3,), ()),
            cause=(Cause.METADATA_MISMATCH,),
            story="In step 9 all 64 tokens of rank 3 go to the first expert; it announces 64 and sends 56.",
        ),
    ),
    # Gradients are sent as half floats by the rank whose gradients are small.
    #
    # nemo-7927: the receiver allocates another type than the sender has.
    Fault(
        name="dtype",
        title="one rank reduces its gradients as float16",
        job=LOOP,
        edits=(
            Edit(
                "        dist.all_reduce(parameter.grad)\n        parameter.grad /= WORLD\n",
                '        sent = parameter.grad.half() if RANK == 2 and add_ups["n"] > 20 else parameter.grad\n'
                "        dist.all_reduce(sent)\n"
                "        parameter.grad.copy_(sent / WORLD)\n",
            ),
            after('log = logging.getLogger("train")\n', 'add_ups = {"n": 0}\n', guilty=False),
            before("    total = torch.tensor([value], device=DEVICE)\n", '    add_ups["n"] += 1\n', guilty=False),
        ),
        truth=Truth(
            suspects=((2,),),
            cause=(Cause.METADATA_MISMATCH,),
            symptom=(*HANGS, Symptom.NO_HANG),
            story="From step 10 on rank 2 reduces float16 where the others reduce float32.",
        ),
    ),
    # A table is broadcast into a larger one on one rank: it completes, and the last rows stay as they were.
    #
    # deepspeed-5117: the last, incomplete batch is broadcast into a tensor of full size.
    Fault(
        name="larger-table",
        title="broadcast into a larger table on one rank",
        job=LOOP,
        ends=True,
        edits=(
            after(
                "    counts, norms = make_groups()\n",
                "    words = 32 if RANK == 3 else 30  # that node has a newer word list\n"
                "    table = torch.zeros(words, 4, device=DEVICE)\n"
                "    dist.broadcast(table, src=0)\n",
            ),
        ),
        truth=Truth(
            suspects=((3,),),
            cause=(Cause.METADATA_MISMATCH,),
            symptom=(Symptom.NO_HANG, *HANGS),
            story="Rank 3 receives 30 rows into 32; two rows stay zero. On NCCL it may hang instead.",
        ),
    ),
    # The losses of a short last batch are gathered with fewer elements on one rank.
    #
    # lightning-12630, trl-3069, bergson-227: gathers of tensors whose length is local. NCCL completes it with wrong data, gloo
    # refuses it.
    Fault(
        name="ragged-gather",
        title="all_gather of fewer elements on one rank",
        job=LOOP,
        ends=True,
        edits=(
            Edit(
                "        mine = torch.tensor([sum(self.losses) / len(self.losses)], device=DEVICE)\n",
                "        mine = torch.tensor(self.losses, device=DEVICE)\n",
            ),
            before(
                "        metrics.losses.append(loss.item())\n",
                "        if not (RANK == 2 and step == 7):  # a batch without labels\n    ",
                guilty=False,
            ),
            Edit(
                "        return [round(value.item(), 4) for value in everyone]\n",
                "        return [round(value.mean().item(), 4) for value in everyone]\n",
                guilty=False,
            ),
        ),
        truth=Truth(
            suspects=((2,), ()),
            cause=(Cause.METADATA_MISMATCH,),
            symptom=(Symptom.NO_HANG, *HANGS),
            story="In the second report rank 2 gathers four losses, the others five. NCCL completes it and mixes them up.",
        ),
        truth_on={
            "gloo": Truth(
                suspects=((2,), ()),
                cause=(Cause.METADATA_MISMATCH,),
                story="In the second report rank 2 gathers four losses, the others five.",
            )
        },
    ),
    # One rank takes the weights from another root than the rest.
    #
    # The recorder keeps no root: the calls look alike on all ranks, and only the source shows that their argument is local.
    # verl-5701 is another broadcast whose root does not fit.
    Fault(
        name="wrong-root",
        title="one rank broadcasts from another root",
        job=LOOP,
        edits=(
            Edit(
                "        dist.broadcast(parameter.data, src=0)\n",
                "        dist.broadcast(parameter.data, src=best_member())\n",
            ),
            before(
                "def train() -> None:\n",
                "def best_member() -> int:\n"
                "    scores = {2: [0.2, 0.1, 0.4, 0.3]}.get(RANK, [0.5, 0.1, 0.4, 0.3])  # rank 2 reads an old file\n"
                "    return scores.index(max(scores))\n"
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((2,), ()),
            cause=(Cause.METADATA_MISMATCH,),
            action=(Action.FIX_CODE, Action.INVESTIGATE),
            story="Rank 2 sends its own weights, the others wait for those of rank 0.",
        ),
    ),
)
