"""The same on other machines: each asks its own ranks with the forkpoint installed there, and sends the result.

One fixed script runs there, started by ssh or srun. What a user gives reaches it as lines of standard input, so that none
of it is taken for a command.
"""

import io
import tarfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import BinaryIO

import msgspec

from forkpoint.gather.attach.folder import ATTACH_NAME, RANKS_NAME, Attached
from forkpoint.gather.engines import AT_ONCE, Commands
from forkpoint.gather.folder import CollectNote, EvidenceFolder
from forkpoint.gather.remote import SAY_BEGIN, unpack
from forkpoint.gather.tools import running

_SCRIPT = (
    f"{SAY_BEGIN}; "
    "IFS= read -r python; IFS= read -r seconds; IFS= read -r job; IFS= read -r stacks; "
    'set --; test -z "$job" || set -- --job "$job"; test "$stacks" = yes || set -- "$@" --no-stacks; '
    # Whatever nobody waits for any longer must not keep running on the node.
    'limit=; command -v timeout >/dev/null && limit="timeout $seconds"; '
    'exec $limit "$python" -m forkpoint attach --send "$@"'
)


@dataclass(frozen=True, slots=True)
class HostAnswer:
    host: str
    attached: Attached | None
    """None: nothing was received, and the notes say why."""
    notes: tuple[str, ...]


def ask_hosts(
    hosts: Commands, job: str, folder: EvidenceFolder, *, stacks: bool, tell: Callable[[HostAnswer], None]
) -> list[HostAnswer]:
    """Puts what each host sends into the folder, below the host's name."""
    answers: list[HostAnswer] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(_ask, hosts, host, job, folder, stacks=stacks) for host in hosts.argv]
        for done in as_completed(asked):
            answers.append(done.result())
            tell(answers[-1])
    return sorted(answers, key=lambda answer: answer.host)


def _ask(hosts: Commands, host: str, job: str, folder: EvidenceFolder, *, stacks: bool) -> HostAnswer:
    lines = (hosts.python, str(ceil(hosts.node_timeout_s)), job, "yes" if stacks else "no")
    question = "".join(f"{line}\n" for line in lines).encode()
    described: list[bytes] = []
    notes: list[str] = []
    with running(hosts.argv[host](_SCRIPT), question, hosts.node_timeout_s) as tool:
        if tool.failed is None:
            got = unpack(tool.answer, host, host, folder, {ATTACH_NAME: described.append})
            notes += [one.text for one in got if isinstance(one, CollectNote)]
    if tool.failed is not None:
        notes = [hosts.explain(host, tool.failed)]
    attached = _read(described)
    if attached is None and not notes:
        notes = ["did not answer like forkpoint: is another version there?"]
    return HostAnswer(host, attached, tuple(notes))


def _read(described: Sequence[bytes]) -> Attached | None:
    try:
        return msgspec.json.decode(described[0], type=Attached) if described else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def send(root: Path, stream: BinaryIO) -> None:
    """All files of the folder as a tar: what `_ask` unpacks."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in _files(root):
            data = path.read_bytes()
            info = tarfile.TarInfo(str(path.relative_to(root)))
            info.size, info.mtime = len(data), int(path.stat().st_mtime)
            archive.addfile(info, io.BytesIO(data))


def _files(root: Path) -> Iterable[Path]:
    """`attach.json` first, since the rest may be cut off; not `ranks.json`, which the asking machine writes for the job."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name != RANKS_NAME)
    return sorted(found, key=lambda path: (path.name != ATTACH_NAME, path))
