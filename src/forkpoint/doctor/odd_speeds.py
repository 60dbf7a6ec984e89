"""Ports that are slower than others of the same kind: on one node they should all be alike."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping


def slower_than_others(speeds: Iterable[tuple[str, str, float]]) -> Iterator[tuple[str, float, float]]:
    """From (name, kind, speed): name and speed of each that is below the fastest of its kind, and that speed."""
    alike: Mapping[str, list[tuple[str, float]]] = defaultdict(list)
    for name, kind, speed in speeds:
        alike[kind].append((name, speed))
    for ports in alike.values():
        fastest = max(speed for _, speed in ports)
        for name, speed in ports:
            if speed < fastest:
                yield name, speed, fastest
