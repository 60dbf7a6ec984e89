"""Stacks as gdb prints them for `thread apply all bt` and, with Python's extension loaded, `thread apply all py-bt`.

    Thread 3 (Thread 0x7fbe8957c6c0 (LWP 25850) "pt_autograd_0"):
    #0  0x00007fbe8a282fa8 in accept4 (fd=3, flags=524288) at ../sysdeps/unix/sysv/linux/accept4.c:31
    #1  0x00007f8497512501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/torch/lib/libtorch_cpu.so

    Thread 1 (Thread 0x7fd71781cb80 (LWP 26369) "python"):
    Traceback (most recent call first):
      File "/train/train.py", line 29, in main
        ctypes.CDLL(None).pause()

A terminal wraps long frames; the rest is indented further. The views of both commands become one stack. Frames of older
Python versions also appear in the arguments of native ones: `f=Frame 0x7f.., for file train.py, line 29, in main (..`.
"""

import re
from collections.abc import Sequence

from forkpoint.evidence.stacks.threads import MAX_THREADS, UNNAMED, Draft, Thread, read_number
from forkpoint.evidence.text import clean

_TRACEBACK = "Traceback (most recent call first)"
MARKS = ("#0  ", _TRACEBACK)
"""Every text with stacks in this format contains one of them."""
_THREAD = re.compile(
    r"Thread (\d{1,9}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?(?:LWP|process) (\d{1,19})\)?(?: \"([^\"]{0,100})\")?\)+:"
)
_FRAME = re.compile(r"#(\d  |\d{2,6} )(?:0x[0-9a-f]{1,16} in )?(?=\S)")
_PYTHON_FRAME = re.compile(r'  (?:\[\w{1,20}\] )?File "([^"]{1,1000})", line (\d{1,9}), in (.{1,300})$')
_IN_ARGUMENTS = re.compile(r"Frame 0x[0-9a-f]{1,16}, for file ([^,]{1,1000}), line (\d{1,9}), in ([^ (]{1,300})")
_AT = re.compile(r"(.{1,1000}):(\d{1,9})$")
_TALK = ("[New LWP ", "[Thread debugging using libthread_db", "GNU gdb ", "(gdb) thread apply", "(gdb) bt")
_WRAPPED_LIMIT = 4000


def begins_stacks(line: str) -> bool:
    return bool(_THREAD.match(line)) or (line.startswith("#0") and bool(_FRAME.match(line)))


def begins_talk(line: str) -> bool:
    """Whether gdb's other output begins here: before the first stack it prints threads, symbols and a source line."""
    return line.startswith(_TALK)


def read_threads(lines: Sequence[str], first: int) -> list[Thread]:
    """`first`: the number of the first line in the file."""
    threads: dict[str, Draft] = {}
    current: Draft | None = None
    pending = ""
    for number, line in enumerate(lines, first):
        if _continues(line, pending):
            pending = f"{pending} {line.strip()}"
            continue
        _take_native(pending, current)
        pending = ""
        header = _THREAD.match(line) if line.startswith("Thread ") else None
        if header:
            current = _begin(threads, number, header)
        elif line.startswith("#") and _FRAME.match(line):
            # Without a header, only plain `bt` output: C++ exception traces in logs do not begin at 0.
            current = current or (_begin(threads, number, None) if line.startswith("#0  ") else None)
            pending = line
        elif current and line.startswith(("  ", _TRACEBACK)):
            _take_python(line, current)
        elif not line.startswith(" "):
            current = None
    _take_native(pending, current)
    return _finish(threads)


def _continues(line: str, pending: str) -> bool:
    wrapped = line.startswith("  ") and len(pending) + len(line) < _WRAPPED_LIMIT
    return bool(pending) and wrapped and not _PYTHON_FRAME.match(line)


def _begin(threads: dict[str, Draft], line: int, header: re.Match[str] | None) -> Draft | None:
    """A new thread, or the one that an earlier command showed."""
    ident = header[2] if header else ""
    if ident not in threads:
        if len(threads) == MAX_THREADS:
            return None
        threads[ident] = Draft(line, ident, name=clean(header[3]) if header and header[3] else None)
    return threads[ident]


def _take_native(line: str, thread: Draft | None) -> None:
    frame = _FRAME.match(line)
    if not frame or not thread:
        return
    if int(frame[1]) == 0:
        thread.native.clear()
    inside = _IN_ARGUMENTS.search(line) if ", for file " in line else None
    if inside:
        thread.add(inside[3], inside[1], int(inside[2]))
    thread.add_native(_name(line[frame.end() :]), *_where(line))


def _name(text: str) -> str:
    """Without templates and arguments: `c10d::Work::wait(std::chrono::..) () from ..` is `c10d::Work::wait`."""
    start = "(anonymous namespace)::" if text.startswith("(anonymous namespace)::") else ""
    rest = text[len(start) :]
    if rest.startswith(("<", UNNAMED)):
        return rest.partition(">")[0] + ">" if rest.startswith("<") else UNNAMED
    ends = [at for at in (rest.find("("), rest.find("<")) if at >= 0]
    return start + rest[: min(ends, default=len(rest))].strip()


def _where(line: str) -> tuple[str, int]:
    _, found, library = line.rpartition(") from ")
    if found:
        return library.strip(), 0
    _, found, source = line.rpartition(") at ")
    at = _AT.match(source.strip()) if found else None
    return (at[1], int(at[2])) if at else ("", 0)


def _take_python(line: str, thread: Draft) -> None:
    frame = _PYTHON_FRAME.match(line)
    if frame:
        thread.add(frame[3], frame[1], read_number(frame[2]))
    elif line.startswith(_TRACEBACK):
        thread.frames.clear()
    elif line.startswith("  Waiting for the GIL"):
        thread.state = "waiting for the GIL"
    elif line.startswith("  Garbage-collecting"):
        thread.state = "garbage-collecting"


def _finish(threads: dict[str, Draft]) -> list[Thread]:
    return sorted((draft.finish() for draft in threads.values()), key=lambda thread: thread.line)
