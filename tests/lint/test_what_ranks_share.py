"""Decisions that look different on each rank and are the same where it counts, each beside one that is not."""

from pathlib import Path

from looping import for_each
from tests.lint.pairs import Pair, check_pair

HELPER = """
        def wait(group=None):
            dist.barrier(group=group)

        class Index:
            def __init__(self, config, stages):
                self.config, self.stages = config, stages

            def merge(self):
                if self.config.data_rank == 0:
                    wait({group})
"""
FLAG = """
        def wait(group=None):
            dist.barrier(group=group)

        class Sender:
            def __init__(self, writers):
                self.writes = dist.get_rank() == 0
                self.writers = writers

            def send(self):
                if self.writes:
                    wait({group})
"""
NAME = """
        def save(folder, last):
            where = {name}
            if where == last:
                dist.barrier()
"""
HALVES = """
        def open_store(path):
            store = None
            if dist.get_rank() == 0:
                store = Store(path)
            dist.barrier()
            if dist.get_rank() != 0:
                store = {other}
            if store is not None:
                dist.barrier()
"""
QUEUE = """
        from collections import deque

        class Policy:
            def __init__(self):
                self.queue = deque()

            def add(self, request):
                {added}

            def act(self, state):
                if len(self.queue) == 0:
                    self.queue.extend(self.plan(state))
                    dist.all_reduce(state)
                return self.queue.popleft()
"""
DEVICE = """
        def find():
            kind = "cuda"
            try:
                torch.cuda.init()
            except RuntimeError:
                kind = "cpu"
            return kind

        {name} = find()

        def reduce_all(x):
            if {name} == "cuda":
                dist.all_reduce(x)
"""
COUNTS = """
        def train(agents, limit):
            while not (agents.{counted} >= limit).all():
                dist.barrier()
"""
ROOT = """
        def report(dist_info, node, total):
            if {holder}.is_root():
                dist.all_reduce(total)
"""
TWO_WAYS = """
        def on_xla():
            return "xla" in torch.__version__

        def write(state):
            if on_xla():
                dist.barrier()
            torch.save(state, "state")

        def save(state):
            if dist.get_rank() != 0 {others}:
                return
            write(state)
"""
SENT = """
        def {name}(parts):
            if dist.get_rank() == 0:
                dist.scatter(parts[0], parts)
                return parts[0]
            mine = torch.empty(8)
            dist.scatter(mine)
            return mine

        def work(parts, total):
            if {name}(parts) is None:
                return
            dist.all_reduce(total)
"""
PAIRS = {
    "the group that a helper is given consists of these ranks": Pair(
        "call-under-branch", HELPER.format(group=""), HELPER.format(group="self.stages.pipeline_group")
    ),
    "a flag may select the members of a group that a helper is given": Pair(
        "call-under-branch", FLAG.format(group=""), FLAG.format(group="self.writers.group")
    ),
    "a rank in the name of a folder decides nothing about its beginning": Pair(
        "collective-under-branch",
        NAME.format(name="dist.get_rank()"),
        NAME.format(name='f"{folder}/{dist.get_rank()}"'),
    ),
    "both halves of the ranks make the same": Pair(
        "collective-under-branch", HALVES.format(other="find(path)"), HALVES.format(other="Store(path)")
    ),
    "a queue that who takes from it fills": Pair(
        "collective-under-branch", QUEUE.format(added="self.queue.append(request)"), QUEUE.format(added="pass")
    ),
    "which device a rank works on": Pair(
        "collective-under-branch", DEVICE.format(name="FOUND"), DEVICE.format(name="DEVICE")
    ),
    "the root of a job, and the root of a tree": Pair(
        "collective-under-branch", ROOT.format(holder="distributed"), ROOT.format(holder="node")
    ),
    "who leaves would not have communicated in the function that follows": Pair(
        "exit-before-collective", TWO_WAYS.format(others=""), TWO_WAYS.format(others="and not on_xla()")
    ),
    "what one rank sends to each other one": Pair(
        "exit-before-collective", SENT.format(name="choose"), SENT.format(name="scatter_parts")
    ),
    "steps are counted alike": Pair(
        "loop-count-differs", COUNTS.format(counted="scores"), COUNTS.format(counted="steps")
    ),
}


@for_each("what", PAIRS)
def test_what_ranks_share_is_no_hazard(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)
