"""Loop and loader thread of one rank wait for each other: the loop holds the lock that the loader needs."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="loader-lock",
    title="loop and loader of one rank wait for each other",
    job=LOOP,
    edits=(
        Edit(
            "        self.batches, self.ready = batches, queue.Queue[Tensor | None](maxsize=2)\n",
            (
                "        self.batches, self.ready = batches, queue.Queue[Tensor | None](maxsize=2)\n"
                "        self.cache, self.taken = threading.Lock(), 0\n"
            ),
            guilty=False,
        ),
        Edit(
            (
                "        generator = torch.Generator().manual_seed(13 * index + RANK)\n"
                "        return torch.randn(BATCH, WIDTH, generator=generator)\n"
            ),
            (
                "        if RANK == 3 and index == 9:\n"
                "            time.sleep(3)  # a file that is on no disk of this node yet\n"
                "        with self.cache:\n"
                "            generator = torch.Generator().manual_seed(13 * index + RANK)\n"
                "            return torch.randn(BATCH, WIDTH, generator=generator)\n"
            ),
            guilty=False,
        ),
        Edit(
            "    def __iter__(self) -> Iterator[Tensor]:\n        while (batch := self.ready.get()) is not None:\n",
            (
                "    def take(self) -> Tensor | None:\n"
                "        self.taken += 1\n"
                "        if self.taken % 10 == 0:\n"
                "            with self.cache:  # nothing may be prepared while it is trimmed\n"
                '                log.info("trimmed the cache")\n'
                "                return self.ready.get()\n"
                "        return self.ready.get()\n"
                "\n"
                "    def __iter__(self) -> Iterator[Tensor]:\n"
                "        while (batch := self.take()) is not None:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.HOST_STALL,),
        suspects=((3,),),
        action=(Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE, Action.INVESTIGATE),
        story="The loop of rank 3 takes its tenth batch while it holds the lock; the loader is late with it and cannot prepare it without the lock.",
    ),
)
