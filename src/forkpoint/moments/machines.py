"""Moments that machines tell: kernels, and NCCL's RAS."""

from collections.abc import Iterator

from forkpoint.clocks import Clocks
from forkpoint.ingest.machine.places import place_of_bus
from forkpoint.ingest.machine.remarks import RAS
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Evidence, Source
from forkpoint.moments.sighting import Sighting

MAX_REMARKS = 200
"""A machine can say more than a timeline holds."""


def find_remarked(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    for remark in sorted(incident.capture.remarks, key=lambda r: (r.xid is None, r.file, r.line))[:MAX_REMARKS]:
        place = place_of_bus(incident.capture.places, remark.host, remark.bus_id)
        instant = clocks.of_remark(remark)
        yield Sighting(
            instant=instant,
            when=remark.when if instant else None,
            source=Source.RAS if remark.kind == RAS else Source.KERNEL,
            kind=remark.kind,
            about=f"{remark.host} {remark.bus_id} {remark.says}",
            host=remark.host,
            says=remark.says,
            evidence=Evidence(remark.file, place.rank if place else None, f"line {remark.line}", remark.says),
            line=remark.line,
        )
