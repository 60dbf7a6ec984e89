"""NVLink: are all links up, and do their error counters move?

Counters run for the life of the hardware and are rarely zero, so only what is added between two reads counts. Limits are
those of NVIDIA's DCGM (common/DcgmGPUHardwareLimits.h): one replay or recovery while it looks
(DCGM_LIMIT_MAX_LWLINK_ERROR), and CRC errors "only matter at rates of 100+ per second".
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import break_gpu, look_at_gpus
from forkpoint.doctor.nvml import Gpu, LinkErrors, NvLink
from forkpoint.doctor.nvml_reader import INTERVAL_S

EVENTS_AT_LEAST = 1
CRC_PER_SECOND = 100.0


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
    if not any(link.active for gpu in gpus for link in gpu.links):
        return skipped("no GPU has an active NVLink: none is built in, or the fabric is not up")
    details = (
        ("active NVLinks", ", ".join(str(_active(gpu)) for gpu in gpus)),
        *((f"count {gpu.label} NVLink {name}", str(total)) for gpu in gpus for name, total in _totals(gpu)),
    )
    trouble = [*_fewer(gpus), *(said for gpu in gpus for link in gpu.links for said in _moved(gpu, link))]
    if trouble:
        return bad(
            "; ".join(trouble),
            "`nvidia-smi nvlink --status` and `nvidia-smi nvlink -e` a minute apart; look for Xid 74 or 144 to 150 in the "
            "kernel log. Cable, baseplate and both ends are the operator's to inspect",
            *details,
        )
    return ok(f"{sum(_active(gpu) for gpu in gpus)} links active, no error counter moved in {INTERVAL_S:g} s", *details)


def _active(gpu: Gpu) -> int:
    return sum(link.active for link in gpu.links)


def _fewer(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Boards differ in how many links are wired, so a GPU is compared with the others of its model."""
    alike: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        alike[gpu.name].append(gpu)
    for group in alike.values():
        most = max(_active(gpu) for gpu in group)
        for gpu in group:
            if _active(gpu) < most:
                yield f"{gpu.label} has {_active(gpu)} active links, others of its model {most}"


def _moved(gpu: Gpu, link: NvLink) -> Iterator[str]:
    for name, before, after in _counters(link.before, link.after):
        limit = CRC_PER_SECOND * INTERVAL_S if name == "CRC" else EVENTS_AT_LEAST
        if after - before >= limit:
            yield f"{gpu.label} link {link.number}: {after - before} {name} errors in {INTERVAL_S:g} s"


def _counters(before: LinkErrors, after: LinkErrors) -> Iterator[tuple[str, int, int]]:
    pairs = (
        ("replay", before.replay, after.replay),
        ("recovery", before.recovery, after.recovery),
        ("CRC", before.crc, after.crc),
    )
    for name, one, two in pairs:
        if one is not None and two is not None:
            yield name, one, two


def _totals(gpu: Gpu) -> Iterator[tuple[str, int]]:
    totals: dict[str, int] = defaultdict(int)
    for link in gpu.links:
        for name, _, after in _counters(link.before, link.after):
            totals[name] += after
    yield from totals.items()


def _break(gpu: Gpu) -> Gpu:
    none = LinkErrors(0, 0, 0)
    link = NvLink(0, active=True, before=none, after=replace(none, replay=EVENTS_AT_LEAST))
    return replace(gpu, links=(link, *gpu.links[1:]))


CHECK = Check(
    name="gpu-nvlink",
    title="NVLinks are up and count no errors",
    why="A link that replays or recovers slows a collective or stops it; the ranks on it wait inside the kernel.",
    look=look_at_gpus(_judge),
    inject=break_gpu(_break),
)
