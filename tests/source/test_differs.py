"""Which conditions can differ by rank. Each has a near miss that cannot."""

from pathlib import Path

from forkpoint.source.apis import Origin, Strength
from looping import for_each
from tests.source.written import analysis_of, asked

DIFFERS = {
    "the rank itself": ("def f():\n    if dist.get_rank() == 0:  # ?\n        pass", Origin.RANK),
    "a name that says so": ("def f(local_rank):\n    if local_rank == 0:  # ?\n        pass", Origin.RANK),
    "the launcher's variable": ("def f():\n    if os.environ['RANK'] == '0':  # ?\n        pass", Origin.RANK),
    "a function that returns it": (
        "def main():\n    return dist.get_rank() == 0\ndef f():\n    if main():  # ?\n        pass",
        Origin.RANK,
    ),
    "an attribute set in the constructor": (
        ("class T:\n    def __init__(self):\n        self.first = dist.get_rank() == 0\n"
        "    def f(self):\n        if self.first:  # ?\n            pass"),
        Origin.RANK,
    ),
    "a property": (
        ("class T:\n    @property\n    def first(self):\n        return dist.get_rank() == 0\n"
        "    def f(self):\n        if self.first:  # ?\n            pass"),
        Origin.RANK,
    ),
    "what is set on one side of a branch on the rank": (
        "def f():\n    stop = False\n    if dist.get_rank() == 0:\n        stop = True\n    if stop:  # ?\n        pass",
        Origin.RANK,
    ),
    "what is there on one rank only": (
        "def f():\n    log = open('x') if dist.get_rank() == 0 else None\n    if log is not None:  # ?\n        pass",
        Origin.RANK,
    ),
    "what a caller passes": (
        "def f(flag):\n    if flag:  # ?\n        pass\ndef g():\n    f(dist.get_rank() == 0)",
        Origin.RANK,
    ),
    "a result returned early on one rank": (
        ("def stop():\n    if dist.get_rank() == 0:\n        return True\n    return False\n"
        "def f():\n    if stop():  # ?\n        pass"),
        Origin.RANK,
    ),
    "a NaN check": ("def f(x):\n    if torch.isnan(x):  # ?\n        pass", Origin.LOCAL_DATA),
    "an element of a local tensor": ("def f(x):\n    if x.sum().item() > 3:  # ?\n        pass", Origin.LOCAL_DATA),
    "a batch": ("def f(loader):\n    for batch in loader:\n        if batch.sum() > 0:  # ?\n            pass", Origin.LOCAL_DATA),
    "how much a mask selects": ("def f(x, mask):\n    if x[mask.bool()].numel() == 0:  # ?\n        pass", Origin.LOCAL_DATA),
    "the clock": ("def f(t0):\n    if time.time() - t0 > 60:  # ?\n        pass", Origin.TIME),
    "free memory": ("def f():\n    if torch.cuda.memory_allocated() > 5:  # ?\n        pass", Origin.MEMORY),
    "a lock that is not waited for": ("def f(lock):\n    if lock.acquire(blocking=False):  # ?\n        pass", Origin.TIMING),
    "a future": ("def f(future):\n    if future.done():  # ?\n        pass", Origin.TIMING),
    "a flag set in a handler": (
        ("def f(step):\n    ok = True\n    try:\n        step()\n    except RuntimeError:\n        ok = False\n"
        "    if ok:  # ?\n        pass"),
        Origin.EXCEPTION,
    ),
    "a list filled on one rank": (
        "def f():\n    found = []\n    if dist.get_rank() == 0:\n        found.append(1)\n    if len(found) > 0:  # ?\n        pass",
        Origin.RANK,
    ),
}  # fmt: skip

EQUAL = {
    "the world's size": "def f():\n    if dist.get_world_size() > 1:  # ?\n        pass",
    "configuration": "def f(cfg, step):\n    if step % cfg.every == 0:  # ?\n        pass",
    "another variable of the environment": "def f():\n    if os.environ['WORLD_SIZE'] == '8':  # ?\n        pass",
    "whether there are ranks at all": "def f(local_rank):\n    if local_rank != -1:  # ?\n        pass",
    "what a reduction made equal in place": "def f(x):\n    dist.all_reduce(x)\n    if x.item() > 3:  # ?\n        pass",
    "what a broadcast made equal in place": (
        "def f():\n    flag = torch.tensor(dist.get_rank())\n    dist.broadcast(flag, src=0)\n    if flag.item():  # ?\n        pass"
    ),
    "a broadcast list": (
        "def f():\n    box = [dist.get_rank()]\n    dist.broadcast_object_list(box)\n    if box[0]:  # ?\n        pass"
    ),
    "what a function of the program reduced": (
        "def agree(flag):\n    t = torch.tensor(flag)\n    dist.all_reduce(t)\n    return t.item() > 0\n"
        "def f(loss):\n    if agree(torch.isnan(loss)):  # ?\n        pass"
    ),
    "what is reduced where the job is distributed": (
        "def agree(x):\n    if not dist.is_initialized():\n        return x\n    dist.all_reduce(x)\n    return x\n"
        "def f(x):\n    if agree(x).item() > 0:  # ?\n        pass"
    ),
    "an argument that all callers made equal": (
        "def f(x):\n    if x.item() > 0:  # ?\n        pass\ndef g(x):\n    dist.all_reduce(x)\n    f(x)"
    ),
    "the index of a batch": "def f(loader):\n    for i, batch in enumerate(loader):\n        if i % 10 == 0:  # ?\n            pass",
    "the other half of a pair": (
        "def info():\n    return dist.get_world_size(), dist.get_rank()\n"
        "def f():\n    size, rank = info()\n    if size > 1:  # ?\n        pass"
    ),
    "LoRA's rank": "def f(lora_rank):\n    if lora_rank > 8:  # ?\n        pass",
    "the kind of a thing": "def f(batch):\n    if isinstance(batch, dict):  # ?\n        pass",
    "a set, asked what is in it": "def f(names):\n    if 'x' in set(names):  # ?\n        pass",
    "what survives a check that raises": (
        "def f(x, n):\n    if torch.isnan(x):\n        raise ValueError\n    n = n + 1\n    if n > 3:  # ?\n        pass"
    ),
    "what a missing package decides": (
        "def f():\n    ok = True\n    try:\n        import apex\n    except ImportError:\n        ok = False\n"
        "    if ok:  # ?\n        pass"
    ),
}


@for_each("what", DIFFERS)
def test_it_can_differ(what: str, tmp_path: Path) -> None:
    source, origin = DIFFERS[what]

    reasons = asked(analysis_of(tmp_path, train=source)).reasons

    assert origin in {r.origin for r in reasons}
    assert any(r.strength is not Strength.POSSIBLE for r in reasons)


@for_each("what", EQUAL)
def test_nothing_says_that_it_differs(what: str, tmp_path: Path) -> None:
    reasons = asked(analysis_of(tmp_path, train=EQUAL[what])).reasons

    assert [r for r in reasons if r.origin is not Origin.ORDER] == []


def test_the_reason_names_the_place_where_it_begins(tmp_path: Path) -> None:
    analysis = analysis_of(
        tmp_path,
        roles="def is_first():\n    return dist.get_rank() == 0\n",
        train="from roles import is_first\ndef f():\n    if is_first():  # ?\n        pass\n",
    )

    (reason,) = asked(analysis).reasons

    assert (Path(reason.file).name, reason.line, reason.expression) == ("roles.py", 6, "dist.get_rank()")


def test_recursion_and_cycles_of_imports_end(tmp_path: Path) -> None:
    analysis = analysis_of(
        tmp_path,
        a="from b import g\ndef f(x):\n    return g(x) or f(x)\n",
        b="from a import f\ndef g(x):\n    return f(x)\ndef h(x):\n    if g(x):  # ?\n        pass\n",
    )

    assert asked(analysis).reasons == frozenset()
