"""Which variables switch the flight recorder on, by the torch that wrote a dump (facts: environment by version)."""

from forkpoint.model.incident import Incident

# Schema of the dump -> torch releases that write it.
_RELEASES = {"": "2.2", "1.4": "2.3", "2.1": "2.4", "2.4": "2.5 to 2.7", "2.9": "2.8", "2.10": "2.9 or later"}


def how_to_record(incident: Incident) -> tuple[str, ...]:
    """The lines to export before the next run. The dump's schema tells the release only roughly."""
    schemas = {t.schema for t in incident.timeline.traces.values()}
    schema = max(schemas, key=_version)
    release = _RELEASES.get(schema, "2.9 or later")
    both_names = _version(schema) >= (2, 9)
    size = (
        "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
        if both_names
        else "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
    )
    why = (
        "torch 2.11 and later record by default; 2.7 to 2.10 write dumps without entries unless told"
        if both_names
        else "off by default"
    )
    prefix = "TORCH_FR_DUMP_TEMP_FILE" if both_names else "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
    return (
        f"{size}   # torch {release} ({why}); entries, not bytes",
        "export TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        f"export {prefix}=/shared/dumps/$JOB/nccl_trace_rank_   # the rank is appended",
    )


def _version(schema: str) -> tuple[int, ...]:
    """Pairs of numbers, never floats: 2.10 comes after 2.9."""
    return tuple(int(part) for part in schema.split(".") if part.isdigit())
