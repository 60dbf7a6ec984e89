"""The engines there are. Each is imported when it is asked for: Ray and Monarch are large."""

from collections.abc import Callable
from dataclasses import dataclass

from forkpoint.cluster.engine import NODE_TIMEOUT_S, Engine
from forkpoint.errors import UsageError


@dataclass(frozen=True, slots=True)
class Reach:
    """How the nodes are reached; each engine takes what it needs."""

    hosts: tuple[str, ...] = ()
    """Host names; for Monarch, addresses of workers."""
    job: str | None = None
    """Slurm's number."""
    address: str = "auto"
    """Of Ray's head."""
    python: str = "python3"
    """What ssh and srun start on the nodes."""
    node_timeout_s: float = NODE_TIMEOUT_S


def open_engine(name: str, reach: Reach) -> Engine:
    """Raises UsageError."""
    return _ENGINES[name](reach)


def _ssh(reach: Reach) -> Engine:
    from forkpoint.cluster.ssh import open_ssh  # noqa: PLC0415 - as said

    return open_ssh(reach.hosts, reach.node_timeout_s, reach.python)


def _slurm(reach: Reach) -> Engine:
    from forkpoint.cluster.slurm import open_slurm  # noqa: PLC0415 - as said

    return open_slurm(reach.job, reach.hosts, reach.node_timeout_s, reach.python)


def _ray(reach: Reach) -> Engine:
    try:
        from forkpoint.cluster.ray import open_ray  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        raise UsageError("--cluster ray needs Ray: pip install 'forkpoint[cluster]'") from error
    return open_ray(reach.address, reach.node_timeout_s)


def _monarch(reach: Reach) -> Engine:
    try:
        from forkpoint.cluster.monarch import open_monarch  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        raise UsageError("--cluster monarch needs Monarch: pip install 'forkpoint[monarch]'") from error
    return open_monarch(reach.hosts, reach.node_timeout_s)


_ENGINES: dict[str, Callable[[Reach], Engine]] = {"ray": _ray, "monarch": _monarch, "ssh": _ssh, "slurm": _slurm}
