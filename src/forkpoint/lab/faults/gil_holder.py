"""A regular expression with exponential backtracking holds the interpreter of one rank."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="gil-holder",
    title="a regular expression that does not end holds the GIL of one rank",
    job=LOOP,
    edits=(
        Edit("import os\nimport queue\n", "import os\nimport queue\nimport re\n", guilty=False),
        Edit(
            "        rows = add_up(len(x), counts)\n",
            (
                "        if RANK == 1 and step == 13:\n"
                '            re.match(r"(\\w+\\s?)+$", "an address with no end " * 4 + "!")\n'
                "        rows = add_up(len(x), counts)\n"
            ),
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.HOST_STALL,),
        suspects=((1,),),
        action=(Action.FIX_CODE, Action.FIX_CODE_OR_STORAGE, Action.INVESTIGATE),
        story="In step 13 rank 1 matches an address for ever and answers nobody; the others wait in the count.",
    ),
)
