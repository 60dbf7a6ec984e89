"""What the name of a variable or function tells about its value."""

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
    """Holds what this rank logged; not reduced unless the user asks for it."""
    return name in known_apis().words["local_attributes"]


@cache
def is_agreement_word(name: str) -> bool:
    return any(word in name.lower() for word in known_apis().words["agreement"])


@cache
def is_stop_flag(name: str) -> bool:
    """Known trainers check it to decide whether to stop."""
    return name in known_apis().words["stop_flags"]


@cache
def is_world_word(name: str) -> bool:
    """Whether the job is distributed, or over how many ranks: the same on all ranks."""
    return name.lower().strip("_").removeprefix("get_") in known_apis().words["world"]
