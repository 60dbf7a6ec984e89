"""An exception on one rank leads through `finally` into a barrier that the others reach much later.

olmocore-380: the failing rank tears the group down and blocks there, and its exception is not seen until the timeout.
"""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MESH
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="collective-in-finally",
    title="an exception on one rank runs into the barrier of a finally",
    job=MESH,
    edits=(
        Edit(
            '        x = rows(step, mesh.get_local_rank("dp"))\n',
            (
                '        x = rows(step, mesh.get_local_rank("dp"))\n'
                "        if RANK == 2 and step == 10:\n"
                '            raise ValueError("row 80 has no label")\n'
            ),
        ),
        Edit(
            (
                '    train(init_device_mesh(DEVICE, (WORLD // TP, TP), mesh_dim_names=("dp", "tp")))\n'
                "    dist.barrier()\n"
                "    dist.destroy_process_group()\n"
            ),
            (
                "    try:\n"
                '        train(init_device_mesh(DEVICE, (WORLD // TP, TP), mesh_dim_names=("dp", "tp")))\n'
                "    finally:\n"
                "        dist.barrier()\n"
                "        dist.destroy_process_group()\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.DIVERGENT_PATH, Cause.RANK_LOST),
        suspects=((2,),),
        action=(Action.FIX_CODE,),
        story="In step 10 rank 2 raises and waits in the barrier of the finally. Rank 3 waits for it in tp, ranks 0 and 1 run into the dp reduce and wait there.",
    ),
)
