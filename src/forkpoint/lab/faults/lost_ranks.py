"""Ranks that never join, that die, or that lose their connections."""

import signal

from forkpoint.lab.fault import DDP, ERRORS, FSDP, LOOP, MOE, PIPELINE, Edit, Fault, Truth, after, before
from forkpoint.lab.ranks import Signal
from forkpoint.model.verdict import Action, Cause

LOST_RANKS = (
    # One rank is never started: the others wait for it at the rendezvous.
    Fault(
        name="missing-rank",
        title="one rank is never started",
        job=DDP,
        absent=(2,),
        truth=Truth(
            suspects=((2,),),
            cause=(Cause.NEVER_JOINED,),
            action=(Action.INVESTIGATE, Action.REPLACE_OR_RETRY, Action.REPLACE_NODE, Action.FIX_CODE),
            symptom=ERRORS,
            story="The process of rank 2 does not exist. The others time out in init_process_group.",
        ),
    ),
    # The first rank waits for a file system before it joins. It hosts the store, so nobody can even connect.
    Fault(
        name="waits-before-joining",
        title="rank 0, which hosts the store, waits for a mount before it joins",
        job=MOE,
        edits=(
            before(
                "    dist.init_process_group(BACKEND,",
                '    while RANK == 0 and not Path("/mnt/corpus/ready").exists():\n        time.sleep(0.5)\n',
            ),
            after("from datetime import timedelta\n", "from pathlib import Path\n", guilty=False),
        ),
        truth=Truth(
            suspects=((0,),),
            cause=(Cause.NEVER_JOINED, Cause.HOST_STALL),
            action=(
                Action.INVESTIGATE,
                Action.FIX_CODE_OR_STORAGE,
                Action.FIX_CODE,
                Action.REPLACE_OR_RETRY,
                Action.REPLACE_NODE,
            ),
            symptom=ERRORS,
            story="Rank 0 never calls init_process_group; the others cannot reach the store that it would host.",
        ),
    ),
    # A group is made by its members only, although new_group is for everybody.
    #
    # sglang-15805: each rank calls new_group with its own list.
    Fault(
        name="members-only-group",
        title="new_group is called by the members only",
        job=LOOP,
        edits=(
            after("    everybody = list(range(WORLD))\n", "    if RANK in {0, 1}:\n        dist.new_group([0, 1])\n"),
        ),
        truth=Truth(
            suspects=((), (0, 1)),
            cause=(Cause.NEVER_JOINED, Cause.DIVERGENT_PATH),
            action=(Action.FIX_CODE, Action.INVESTIGATE),
            symptom=ERRORS,
            story="Ranks 0 and 1 make a group of their own, ranks 2 and 3 already make the next: under one name two groups of other members come together.",
        ),
    ),
    # A batch is too large for the memory of one rank, and nothing catches it: the rank leaves with a traceback.
    Fault(
        name="oom-exit",
        title="out of memory on the last rank, not caught",
        job=DDP,
        edits=(
            before(
                "        loss = cross_entropy(model(x), y)\n",
                "        if RANK == 3 and step == 12:  # the longest document\n            x = x.repeat(1 << 43, 1)\n",
            ),
        ),
        truth=Truth(
            suspects=((3,),),
            cause=(Cause.RANK_LOST, Cause.DIVERGENT_PATH),
            action=(Action.FIX_CODE, Action.REPLACE_OR_RETRY),
            symptom=ERRORS,
            story="Rank 3 cannot allocate the batch of step 12, raises and exits with 1.",
        ),
    ),
    # The last rank is killed from outside, as the out-of-memory killer of the kernel does: no message, no dump.
    Fault(
        name="sigkill",
        title="the last rank is killed (SIGKILL)",
        job=FSDP,
        signals=(Signal(rank=3, signal=signal.SIGKILL, when="step 5 "),),
        truth=Truth(
            suspects=((3,),),
            cause=(Cause.RANK_LOST,),
            action=(Action.REPLACE_OR_RETRY, Action.INVESTIGATE, Action.REPLACE_NODE),
            symptom=ERRORS,
            story="Rank 3 is killed after step 5. It writes nothing any more.",
        ),
    ),
    # A memory guard inside a library ends the process of the last stage without a traceback.
    Fault(
        name="library-exit",
        title="a library ends the last stage with os._exit",
        job=PIPELINE,
        edits=(
            after("            loss = y.pow(2).mean()\n", "            guard_memory(loss)\n"),
            before(
                "def backward(passed: list[tuple[Tensor, Tensor]]) -> float:\n",
                "def guard_memory(loss: Tensor, seen: list[float] = []) -> None:  # noqa: B006\n"
                '    """Ends the process before the kernel does."""\n'
                "    seen.append(loss.item())\n"
                "    if len(seen) == 26:\n"
                "        os._exit(1)\n"
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((2,),),
            cause=(Cause.RANK_LOST,),
            action=(Action.REPLACE_OR_RETRY, Action.INVESTIGATE, Action.REPLACE_NODE, Action.FIX_CODE),
            symptom=ERRORS,
            story="In step 8 the last stage ends with code 1 and without a word.",
        ),
    ),
    # The connections between two living ranks are shut down, as a switch or a firewall does that forgets them.
    Fault(
        name="cut-connection",
        title="the connections of one rank are cut while all ranks live",
        job=LOOP,
        edits=(
            Edit("import queue\nimport threading\n", "import queue\nimport socket\nimport threading\n", guilty=False),
            before(
                "def add_up(value: float, group: dist.ProcessGroup) -> float:\n",
                "def cut_connections() -> None:\n"
                '    """All but those to the store. Stands for the network: it happens to the job, the job does not do it."""\n'
                '    for fd in map(int, os.listdir("/proc/self/fd")):\n'
                "        try:\n"
                "            connection = socket.socket(fileno=os.dup(fd))\n"
                "            ports = connection.getpeername()[1], connection.getsockname()[1]\n"
                "        except (OSError, IndexError):\n"
                "            continue\n"
                '        if int(os.environ["MASTER_PORT"]) not in ports:\n'
                "            connection.shutdown(socket.SHUT_RDWR)\n"
                "\n"
                "\n",
                guilty=False,
            ),
            before(
                "        rows = add_up(len(x), counts)\n",
                "        if RANK == 1 and step == 12:\n            cut_connections()\n",
            ),
        ),
        truth=Truth(
            suspects=((), (1,)),
            cause=(Cause.TRANSPORT,),
            action=(
                Action.INVESTIGATE,
                Action.FIX_CODE_OR_HARDWARE,
                Action.REPLACE_OR_RETRY,
                Action.REPLACE_NODE,
                Action.FIX_CODE,
            ),
            symptom=ERRORS,
            story="Before step 12 every data connection of rank 1 is shut down. All processes live and find their peers gone.",
        ),
    ),
)
