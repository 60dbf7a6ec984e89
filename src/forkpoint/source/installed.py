"""Where an installed package is, without importing it: importing runs its code."""

from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path


def folder_of(package: str) -> str | None:
    """The folder (or single file) of `accelerate` or `torch.distributed`; None if it is not installed here."""
    top, *inner = package.split(".")
    if not all(part.isidentifier() for part in (top, *inner)):
        return None
    # For a name without a dot this looks at folders and import hooks only; for `a.b` it would import `a`.
    spec = find_spec(top)
    for part in inner:
        where = spec.submodule_search_locations if spec is not None else None
        spec = PathFinder.find_spec(part, [*where]) if where else None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return next((place for place in spec.submodule_search_locations if Path(place).is_dir()), None)
    return spec.origin if spec.origin and Path(spec.origin).is_file() else None
