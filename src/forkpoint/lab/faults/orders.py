"""The same calls in another order."""

from forkpoint.lab.fault import LOOP, MESH, MOE, Edit, Fault, Truth, after
from forkpoint.model.verdict import Cause

ORDERS = (
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
            story="With its hash seed rank 2 reduces the weight first, the others the bias. No rank is wrong: the order of a set is nobody's.",
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
)
