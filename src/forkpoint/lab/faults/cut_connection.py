"""The connections between two living ranks are shut down, as a switch or a firewall does that forgets them."""

from forkpoint.lab.fault import Edit, Fault, Truth
from forkpoint.lab.job import LOOP
from forkpoint.model.verdict import Action, Cause, Symptom

FAULT = Fault(
    name="cut-connection",
    title="the connections of one rank are cut while all ranks live",
    job=LOOP,
    edits=(
        Edit("import queue\nimport threading\n", "import queue\nimport socket\nimport threading\n", guilty=False),
        Edit(
            "def add_up(value: float, group: dist.ProcessGroup) -> float:\n",
            (
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
                "\n"
                "def add_up(value: float, group: dist.ProcessGroup) -> float:\n"
            ),
            guilty=False,
        ),
        Edit(
            "        rows = add_up(len(x), counts)\n",
            "        if RANK == 1 and step == 12:\n            cut_connections()\n        rows = add_up(len(x), counts)\n",
        ),
    ),
    truth=Truth(
        symptom=(Symptom.ERROR, Symptom.WATCHDOG_TIMEOUT, Symptom.SILENT_HANG),
        cause=(Cause.TRANSPORT,),
        suspects=((), (1,)),
        action=(
            Action.INVESTIGATE,
            Action.FIX_CODE_OR_HARDWARE,
            Action.REPLACE_OR_RETRY,
            Action.REPLACE_NODE,
            Action.FIX_CODE,
        ),
        story="Before step 12 every data connection of rank 1 is shut down. All processes live and find their peers gone.",
    ),
)
