"""Parameters by layer: a record of each tensor would be long, one of the whole model would not say where."""

from collections.abc import Sequence

_WRAPPERS = ("module.", "_orig_mod.", "_checkpoint_wrapped_module.")


def plain_name(name: str) -> str:
    """Without what wrappers (DDP, compile, activation checkpointing) put into it."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper).replace(f".{wrapper}", ".")
    return name


def layer_group(name: str) -> str:
    """Up to its first number, or else its first part: `layers.3` of `layers.3.attn.wq.weight`, `embed` of `embed.weight`."""
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: numbered + 1])


def group_places(names: Sequence[str]) -> dict[str, list[int]]:
    """Layer group -> the places of its tensors in `names`, in the order of the model."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(layer_group(name), []).append(place)
    return places
