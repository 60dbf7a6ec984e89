"""Where each rank ran, as far as NCCL's or a launcher's lines tell."""

from dataclasses import dataclass

import numpy as np

from forkpoint.model.incident import Incident
from forkpoint.model.picture import Shorts, Words

_MAX_LOCAL = np.iinfo(np.int16).max


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    hosts: tuple[str, ...]
    host: Words
    local: Shorts


def find_places(incident: Incident) -> Places:
    """NCCL's own line first; where it is missing, the prefix that a launcher put before the rank's lines."""
    where: dict[int, tuple[str, int | None]] = {}
    for rank, events in incident.said.items():
        speaker = next((e.speaker for e in events if e.speaker.host and e.speaker.rank in (None, rank)), None)
        if speaker is not None and speaker.host:
            where[rank] = (speaker.host, speaker.local_rank)
    where |= {place.rank: (place.host, place.gpu) for place in incident.capture.places if place.host}
    world = incident.timeline.world
    hosts = tuple(dict.fromkeys(where[rank][0] for rank in world if rank in where))
    number = {host: index for index, host in enumerate(hosts)}
    return Places(
        hosts=hosts,
        host=np.array([number[where[rank][0]] if rank in where else -1 for rank in world], np.int32),
        local=np.array([_local(where.get(rank)) for rank in world], np.int16),
    )


def _local(place: tuple[str, int | None] | None) -> int:
    return place[1] if place is not None and place[1] is not None and 0 <= place[1] <= _MAX_LOCAL else -1
