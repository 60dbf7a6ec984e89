"""A rank does not arrive: its host, its GPU or its loader waits or is slow."""

import signal

from forkpoint.lab.fault import DDP, LOOP, MESH, Edit, Fault, Truth, after, before
from forkpoint.lab.ranks import Signal
from forkpoint.model.verdict import Action, Cause

STALLS = (
    # Rank 0 waits for the object store to confirm its checkpoint; the store does not answer.
    Fault(
        name="checkpoint-stall",
        title="rank 0 waits for the store that takes its checkpoint",
        job=DDP,
        edits=(
            Edit("import os\nimport time\n", "import os\nimport socket\nimport time\n", guilty=False),
            after('log = logging.getLogger("train")\n', "STORE, FAR_END = socket.socketpair()\n", guilty=False),
            before('        log.info("saved step %d", step)\n', "        upload(step)\n"),
            before(
                "def save(model: DistributedDataParallel, step: int) -> None:\n",
                "def upload(step: int) -> None:\n"
                '    STORE.sendall(Path(f"step-{step}.pt").read_bytes()[:1000])\n'
                '    assert STORE.recv(2) == b"ok"\n'
                "\n"
                "\n",
            ),
        ),
        truth=Truth(
            suspects=((0,),),
            cause=(Cause.HOST_STALL,),
            action=(Action.FIX_CODE_OR_STORAGE, Action.FIX_CODE, Action.INVESTIGATE),
            story="After step 9 rank 0 sends the checkpoint and waits for an answer for ever; the others wait in the barrier behind it.",
        ),
    ),
    # A kernel on one rank's GPU does not end, so the gradients that are reduced next are never ready there.
    Fault(
        name="gpu-kernel",
        title="a kernel does not end on one rank",
        job=DDP,
        backends=("nccl",),
        edits=(
            before(
                "        loss = cross_entropy(model(x), y)\n",
                "        if RANK == 1 and step == 13:\n"
                "            torch.cuda._sleep(1 << 42)  # a loop that does not see its end\n",
            ),
        ),
        truth=Truth(
            suspects=((1,), ()),
            cause=(Cause.GPU_STALL, Cause.HOST_STALL),
            action=(Action.FIX_CODE_OR_HARDWARE, Action.FIX_CODE, Action.INVESTIGATE),
            story="In step 13 the stream of rank 1 holds a kernel that does not end. All ranks issue the reduce of the gradients; that of rank 1 never starts, and its host waits for the loss.",
        ),
    ),
    # One rank prepares its rows for longer than the timeout, and then goes on as if nothing had happened.
    #
    # Nothing is wrong with the order: 3 of 118 public bugs are only this, a rank that is late.
    Fault(
        name="slow-rank",
        title="one rank reads its next file longer than the timeout lasts, and arrives",
        job=DDP,
        edits=(
            Edit(
                "    def batch(self, step: int) -> tuple[Tensor, Tensor]:\n",
                "    def read_next_file(self) -> None:\n"
                '        """From a disk that is slow today: three seconds more than the others wait."""\n'
                '        log.info("reads the next file")\n'
                '        for _ in range(int(os.environ["PG_TIMEOUT"]) + 3):\n'
                "            time.sleep(1)\n"
                '        log.info("has the next file")\n'
                "\n"
                "    def batch(self, step: int) -> tuple[Tensor, Tensor]:\n"
                "        if RANK == 2 and step == 11:\n"
                "            self.read_next_file()\n",
            ),
        ),
        truth=Truth(
            suspects=((2,),),
            cause=(Cause.STRAGGLER, Cause.HOST_STALL),
            action=(Action.RAISE_TIMEOUT, Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE),
            story="Rank 2 reads for three seconds longer than the timeout before step 11. When it comes to the reduce the others have given up.",
        ),
    ),
    # A kernel on one rank's GPU does not end; all ranks have issued the reduce behind it.
    Fault(
        name="gpu-kernel-in-mesh",
        title="a kernel does not end on one rank of a mesh",
        job=MESH,
        backends=("nccl",),
        edits=(
            before(
                "        average(model, dp)\n",
                "        if RANK == 2 and step == 6:\n"
                "            torch.cuda._sleep(1 << 42)  # a loop that does not see its end\n",
            ),
        ),
        truth=Truth(
            suspects=((2,), ()),
            cause=(Cause.GPU_STALL, Cause.HOST_STALL),
            action=(Action.FIX_CODE_OR_HARDWARE, Action.FIX_CODE, Action.INVESTIGATE),
            story="In step 6 the stream of rank 2 holds a kernel that does not end; the reduces that wait behind it never start there.",
        ),
    ),
    # One process is stopped from outside (SIGSTOP) and never continued, as a debugger or a frozen container does.
    Fault(
        name="sigstop",
        title="one rank is stopped (SIGSTOP)",
        job=MESH,
        signals=(Signal(rank=1, signal=signal.SIGSTOP, when="step 8 "),),
        truth=Truth(
            suspects=((1,),),
            cause=(Cause.HOST_STALL, Cause.RANK_LOST),
            action=(
                Action.INVESTIGATE,
                Action.FIX_CODE,
                Action.REPLACE_NODE,
                Action.REPLACE_OR_RETRY,
                Action.FIX_CODE_OR_STORAGE,
            ),
            story="Rank 1 is stopped after step 8: it issues nothing more, answers no signal and writes no dump. Its partners in tp and dp wait for it, and the last rank waits for them.",
        ),
    ),
    # A regular expression with exponential backtracking holds the interpreter of one rank.
    Fault(
        name="gil-holder",
        title="a regular expression that does not end holds the GIL of one rank",
        job=LOOP,
        edits=(
            after("import os\nimport queue\n", "import re\n", guilty=False),
            before(
                "        rows = add_up(len(x), counts)\n",
                "        if RANK == 1 and step == 13:\n"
                '            re.match(r"(\\w+\\s?)+$", "an address with no end " * 4 + "!")\n',
            ),
        ),
        truth=Truth(
            suspects=((1,),),
            cause=(Cause.HOST_STALL,),
            action=(Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE, Action.INVESTIGATE),
            story="In step 13 rank 1 matches an address for ever and answers nobody; the others wait in the count.",
        ),
    ),
    # The loader thread of one rank ends with an exception; its loop waits for a batch that nobody will prepare.
    Fault(
        name="loader-died",
        title="the loader thread of one rank died, its loop waits",
        job=LOOP,
        edits=(
            before(
                "        generator = torch.Generator().manual_seed(13 * index + RANK)\n",
                '        if RANK == 0 and index == 16:\n            raise KeyError("label")\n',
            ),
        ),
        truth=Truth(
            suspects=((0,),),
            cause=(Cause.HOST_STALL, Cause.RANK_LOST),
            action=(Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE, Action.INVESTIGATE),
            story="The loader of rank 0 raises at batch 16; the loop takes what is left and waits for ever.",
        ),
    ),
    # Loop and loader thread of one rank wait for each other: the loop holds the lock that the loader needs.
    Fault(
        name="loader-lock",
        title="loop and loader of one rank wait for each other",
        job=LOOP,
        edits=(
            after(
                "        self.batches, self.ready = batches, queue.Queue[Tensor | None](maxsize=2)\n",
                "        self.cache, self.taken = threading.Lock(), 0\n",
                guilty=False,
            ),
            Edit(
                "        generator = torch.Generator().manual_seed(13 * index + RANK)\n"
                "        return torch.randn(BATCH, WIDTH, generator=generator)\n",
                "        if RANK == 3 and index == 9:\n"
                "            time.sleep(3)  # a file that is on no disk of this node yet\n"
                "        with self.cache:\n"
                "            generator = torch.Generator().manual_seed(13 * index + RANK)\n"
                "            return torch.randn(BATCH, WIDTH, generator=generator)\n",
                guilty=False,
            ),
            Edit(
                "    def __iter__(self) -> Iterator[Tensor]:\n        while (batch := self.ready.get()) is not None:\n",
                "    def take(self) -> Tensor | None:\n"
                "        self.taken += 1\n"
                "        if self.taken % 10 == 0:\n"
                "            with self.cache:  # nothing may be prepared while it is trimmed\n"
                '                log.info("trimmed the cache")\n'
                "                return self.ready.get()\n"
                "        return self.ready.get()\n"
                "\n"
                "    def __iter__(self) -> Iterator[Tensor]:\n"
                "        while (batch := self.take()) is not None:\n",
            ),
        ),
        truth=Truth(
            suspects=((3,),),
            cause=(Cause.HOST_STALL,),
            action=(Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE, Action.INVESTIGATE),
            story="The loop of rank 3 takes its tenth batch while it holds the lock; the loader is late with it and cannot prepare it without the lock.",
        ),
    ),
)
