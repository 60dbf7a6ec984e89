"""What a name says of what it holds."""

from functools import cache

from forkpoint.source.apis import known_apis


@cache
def is_rank_word(name: str) -> bool:
    """`rank`, `local_rank`, `get_data_parallel_rank`, `is_main_process`."""
    words = known_apis().words
    plain = name.lower().strip("_").removeprefix("get_").removeprefix("my_").removeprefix("torch_")
    if plain.endswith(tuple(words["not_rank"])) or "per_" in plain or plain.startswith("num_"):
        return False
    return plain in words["rank"] or plain.endswith("_rank") or ("_rank_" in plain and plain.startswith("is_"))


@cache
def is_loader_word(name: str) -> bool:
    plain = name.lower().strip("_")
    words = known_apis().words["loader"]
    return plain in words or plain.endswith(("_loader", "dataloader", "_iterator"))


@cache
def is_data_word(name: str) -> bool:
    plain = name.lower().strip("_")
    words = known_apis().words["data"]
    return plain in words or plain.endswith(("_loss", "_batch"))


@cache
def is_local_attribute(name: str) -> bool:
    """Holds what this rank logged, reduced only where someone asked for it."""
    return name in known_apis().words["local_attributes"]


@cache
def is_agreement_word(name: str) -> bool:
    return any(word in name.lower() for word in known_apis().words["agreement"])


@cache
def is_stop_flag(name: str) -> bool:
    """A loop of a known trainer looks at it to decide whether to go on."""
    return name in known_apis().words["stop_flags"]


@cache
def is_world_word(name: str) -> bool:
    """Says whether, or how widely, the job is distributed: the same on all ranks."""
    return name.lower().strip("_").removeprefix("get_") in known_apis().words["world"]
