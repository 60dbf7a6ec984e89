"""Nothing is broken and no rank may be accused: every job unchanged, and near misses that only look like a fault."""

from forkpoint.lab.fault import DDP, JOBS, LOOP, MESH, Edit, Fault, HealthyJob, Truth
from forkpoint.model.verdict import Action, Cause, Symptom


def _healthy(name: str, title: str, job: HealthyJob, *edits: Edit) -> Fault:
    return Fault(
        name=f"healthy-{name}",
        title=f"healthy: {title}",
        job=job,
        edits=edits,
        ends=True,
        truth=Truth(
            symptom=(Symptom.NONE,),
            cause=(Cause.HEALTHY,),
            suspects=((),),
            action=(Action.NONE,),
            story="Nothing is wrong: the job runs to its end.",
        ),
    )


_UNEVEN = _healthy(
    "uneven-speed",
    "the last rank needs four times as long for a step",
    MESH,
    Edit("        time.sleep(PACE)\n", "        time.sleep(PACE * (1 + RANK))\n", guilty=False),
)
_SLOW_SAVE = _healthy(
    "slow-checkpoint",
    "rank 0 takes seconds to save while the others wait in the barrier",
    DDP,
    Edit(
        '        log.info("saved step %d", step)\n',
        '        time.sleep(2.5)\n        log.info("saved step %d", step)\n',
        guilty=False,
    ),
)
_RESUMED = _healthy(
    "resumed",
    "all ranks resume from the same step",
    DDP,
    Edit("    for step in range(STEPS):\n", "    for step in range(12, STEPS):\n", guilty=False),
)
_AGREED_SKIP = _healthy(
    "agreed-skip",
    "a bad batch of one rank is skipped by all, by agreement",
    LOOP,
    Edit(
        "        optimizer.zero_grad()\n",
        "        bad = torch.tensor([float(RANK == 1 and step == 7)], device=DEVICE)\n"
        "        dist.all_reduce(bad, op=dist.ReduceOp.MAX)\n"
        "        if bad.item():\n"
        '            log.warning("step %d is skipped", step)\n'
        "            continue\n"
        "        optimizer.zero_grad()\n",
        guilty=False,
    ),
)

HEALTHY = (*(_healthy(job.name, job.title, job) for job in JOBS), _UNEVEN, _SLOW_SAVE, _RESUMED, _AGREED_SKIP)
