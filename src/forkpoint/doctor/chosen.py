"""Which devices NCCL and gloo are told to use: `mlx5_0,mlx5_1:1`, `=eth0`, `^docker,lo` (as in NCCL_IB_HCA)."""


def is_chosen(setting: str, name: str, port: str | None = None) -> bool:
    """A name selects all devices that begin with it; after `=` only that device; after `^` all others.

    An empty setting chooses everything.
    """
    others = setting.startswith("^")
    rest = setting.removeprefix("^")
    exact = rest.startswith("=")
    wanted = [item for item in rest.removeprefix("=").split(",") if item]
    if not wanted:
        return True
    return others != any(_matches(item, name, port, exact=exact) for item in wanted)


def _matches(item: str, name: str, port: str | None, *, exact: bool) -> bool:
    start, _, wanted_port = item.partition(":")
    same = name == start if exact else name.startswith(start)
    return same and (port is None or wanted_port in {"", port})
