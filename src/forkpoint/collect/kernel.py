"""This machine's kernel log: Xids, out of memory, lost network. Read if this user may."""

from io import BytesIO

from forkpoint.collect.call import CallFailed, answer_of
from forkpoint.collect.keep import EvidenceFolder, Original
from forkpoint.collect.manifest import CollectNote, Copied

_LIMIT_S = 5.0
_TOOLS = (
    ("dmesg", "--time-format=iso"),
    ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=short-iso"),
)


def copy_kernel_log(place: str, host: str, folder: EvidenceFolder) -> Copied | CollectNote:
    why: list[str] = []
    for argv in _TOOLS:
        said = answer_of(argv, _LIMIT_S)
        if isinstance(said, CallFailed):
            why.append(said.why)
        elif said.strip():
            done = folder.keep(Original(place, host, f"/{argv[0]}.txt", None, None), BytesIO(said.encode()))
            return done if isinstance(done, Copied) else CollectNote(place, done or f"{argv[0]}: no kernel messages")
    return CollectNote(place, f"no kernel messages: {'; '.join(why) or 'there are none'}")
