"""A memory guard inside a library ends the process of the last stage without a traceback."""

from forkpoint.lab.fault import Edit, Fault, Truth
from forkpoint.lab.job import PIPELINE
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="library-exit",
    title="a library ends the last stage with os._exit",
    job=PIPELINE,
    edits=(
        Edit(
            "            loss = y.pow(2).mean()\n",
            "            loss = y.pow(2).mean()\n            guard_memory(loss)\n",
        ),
        Edit(
            "def backward(passed: list[tuple[Tensor, Tensor]]) -> float:\n",
            (
                "def guard_memory(loss: Tensor, seen: list[float] = []) -> None:  # noqa: B006\n"
                '    """Ends the process before the kernel does."""\n'
                "    seen.append(loss.item())\n"
                "    if len(seen) == 26:\n"
                "        os._exit(1)\n"
                "\n"
                "\n"
                "def backward(passed: list[tuple[Tensor, Tensor]]) -> float:\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.RANK_LOST,),
        suspects=((2,),),
        action=(Action.REPLACE_OR_RETRY, Action.INVESTIGATE, Action.REPLACE_NODE, Action.FIX_CODE),
        story="In step 8 the last stage ends with code 1 and without a word.",
    ),
)
