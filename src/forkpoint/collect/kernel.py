"""What this machine's kernel says: Xids, out of memory, a network that is gone. Read where this user may."""

from io import BytesIO

from forkpoint.collect.call import Failed, answer_of
from forkpoint.collect.keep import Folder, Original
from forkpoint.collect.manifest import Copied, Note

_LIMIT_S = 5.0
_TOOLS = (
    ("dmesg", "--time-format=iso"),
    ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=short-iso"),
)


def copy_kernel_log(place: str, host: str, folder: Folder) -> Copied | Note:
    why: list[str] = []
    for argv in _TOOLS:
        said = answer_of(argv, _LIMIT_S)
        if isinstance(said, Failed):
            why.append(said.why)
        elif said.strip():
            done = folder.keep(Original(place, host, f"/{argv[0]}.txt", None, None), BytesIO(said.encode()))
            return done if isinstance(done, Copied) else Note(place, done or f"{argv[0]}: no kernel messages")
    return Note(place, f"no kernel messages: {'; '.join(why) or 'there are none'}")
