"""What the driver of Mellanox adapters said in the last day: links that went down, cables, power, firmware.

A link that came up again and stayed up is told; a link that is down, and trouble of another kind, is bad.
"""

from collections.abc import Sequence

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.kernel_log import look_at_kernel, say, told
from forkpoint.doctor.pci import lacks_mellanox
from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind

_LINK_IS_UP = ("Link ACTIVE", "Link up", "Link UP")
_LINK = (*_LINK_IS_UP, "Link DOWN", "Link down", "Link INIT", "Link ARMED")


def _judge(events: Sequence[KernelEvent]) -> CheckResult:
    last: dict[tuple[str | None, str | None], KernelEvent] = {}
    for event in events:
        if _about_link(event):
            last[event.bus_id, event.device] = event
    down = [event for event in last.values() if not any(words in event.text for words in _LINK_IS_UP)]
    trouble = [*down, *(event for event in events if not _about_link(event))]
    if trouble:
        return bad(
            told(trouble),
            "`ibstat` or `ip -br link` for the state now, `mlxlink -d DEVICE --show_counters` for the cable (operator)",
        )
    changes = f"; {len(events)} messages of links that are up again" if events else ""
    return ok(f"the adapters' driver told of no trouble in the last day{changes}")


def _about_link(event: KernelEvent) -> bool:
    return any(words in event.text for words in _LINK)


CHECK = Check(
    name="adapter-messages",
    title="the network adapters' driver tells of no trouble",
    why="A port that loses its link leaves the collective on it without an end until NCCL or the watchdog gives up.",
    look=look_at_kernel({KernelKind.MLX5}, _judge, lacks_mellanox),
    inject=say(
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W)."
    ),
)
