"""What the kernel shows: counters read twice, and the messages of the last day."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.doctor.report import CheckResult, bad, ok, skipped
from forkpoint.doctor.system import Ran, System, Unanswered, with_outputs
from forkpoint.evidence.machine.kernel import read_kernel_log
from forkpoint.evidence.machine.kernel_lines import KernelEvent
from forkpoint.evidence.machine.kinds import KernelKind

# ---------------------------------------------------------------------------------------------------------------------
# Kernel counters, read twice. They count since boot, so only the growth between two reads shows the present.

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Counter:
    before: int
    after: int

    @property
    def added(self) -> int:
        """0 if the counter was cleared in between."""
        return max(0, self.after - self.before)


def read_twice(system: System, paths: Iterable[str]) -> Mapping[str, Counter]:
    """By path; only files that can be read both times."""
    before = {path: value for path in paths if (value := read_number(system, path)) is not None}
    if not before:
        return {}
    system.pause(INTERVAL_S)
    after = {path: read_number(system, path) for path in before}
    return {path: Counter(before[path], value) for path, value in after.items() if value is not None}


def read_number(system: System, path: str) -> int | None:
    text = (system.read(path) or "").strip()
    return int(text) if text.removeprefix("-").isdecimal() else None


# ---------------------------------------------------------------------------------------------------------------------
# Recent kernel messages, for the checks that judge them. Read with dmesg, else from the journal.
#
# An empty log proves nothing, since many systems let only root read it: the checks are then skipped.

LOOK_BACK_S = 24 * 3600
"""Last night's job, not last month's: the log goes back to boot, and a reset that fixed a GPU does not clear it."""

_LOG_SOURCES = (
    ("dmesg",),
    ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic"),
)
_AS_ROOT = "run the doctor as root, or as a member of the group that reads the journal (systemd-journal or adm)"


def recent_events(system: System, kinds: Collection[KernelKind]) -> tuple[KernelEvent, ...] | Unanswered:
    """Events of these kinds within the last day; one without a time counts as recent."""
    log = _read_log(system)
    if isinstance(log, Unanswered):
        return log
    uptime = _uptime(system)
    events = read_kernel_log(log, "the kernel log")
    return tuple(event for event in events if event.kind in kinds and _is_recent(event, uptime))


def look_at_kernel(
    kinds: Collection[KernelKind],
    judge: Callable[[Sequence[KernelEvent]], CheckResult],
    needs: Callable[[System], str | None] = lambda _system: None,
) -> Callable[[System], CheckResult]:
    """A check of recent events of these kinds. `needs`: why a machine without such events is skipped, not ok."""

    def look(system: System) -> CheckResult:
        events = recent_events(system, kinds)
        if isinstance(events, Unanswered):
            return skipped(events.why, events.fix)
        lacking = None if events else needs(system)
        return skipped(lacking) if lacking else judge(events)

    return look


def judge_presence(fix: str) -> Callable[[Sequence[KernelEvent]], CheckResult]:
    """Any such event is bad."""

    def judge(events: Sequence[KernelEvent]) -> CheckResult:
        return bad(told(events), fix) if events else ok("the kernel logged none in the last day")

    return judge


def told(events: Sequence[KernelEvent]) -> str:
    """Each message once, the latest last; at most the last three."""
    texts = list(dict.fromkeys(event.text for event in events))
    shown = "; ".join(texts[-_SHOWN:])
    return shown if len(texts) <= _SHOWN else f"{shown} (and {len(texts) - _SHOWN} more)"


_SHOWN = 3


def say(line: str) -> Callable[[System], System]:
    """The same machine, with this line added to the kernel log."""

    def inject(system: System) -> System:
        log = _read_log(system)
        uptime = _uptime(system) or 0.0
        before = "" if isinstance(log, Unanswered) else log.rstrip("\n") + "\n"
        return with_outputs(system, {"dmesg": Ran(0, f"{before}[{uptime:12.6f}] {line}\n")})

    return inject


def _read_log(system: System) -> str | Unanswered:
    reasons: list[str] = []
    for argv in _LOG_SOURCES:
        ran = system.run(argv)
        if isinstance(ran, Unanswered):
            reasons.append(ran.why)
        elif ran.returncode or not ran.stdout.strip():
            first = next(iter(ran.stderr.strip().splitlines()), "it printed nothing")
            reasons.append(first if first.startswith(argv[0]) else f"{argv[0]}: {first}")
        else:
            return ran.stdout
    return Unanswered(f"the kernel log cannot be read ({'; '.join(reasons)})", _AS_ROOT)


def _uptime(system: System) -> float | None:
    words = (system.read("/proc/uptime") or "").split()
    return float(words[0]) if words else None


def _is_recent(event: KernelEvent, uptime: float | None) -> bool:
    if uptime is None or event.when is None or not event.when.isdigit():
        return True
    return uptime - int(event.when) <= LOOK_BACK_S
