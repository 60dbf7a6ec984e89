"""Facts about a DataLoader: how many batches it has, how data is shared out, and how it collates samples."""

import ast
from typing import Any

import torch.utils.data

from forkpoint.rehearse.inside.places import CodePlaces, parse
from forkpoint.rehearse.listening import LoaderFacts


def loader_facts(loader: Any, number: int, places: CodePlaces) -> LoaderFacts:
    sampler, batch_sampler = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    inner = getattr(batch_sampler, "sampler", None)
    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        batches = 0
    own_collate = loader.collate_fn not in (torch.utils.data.default_collate, torch.utils.data.default_convert)
    return LoaderFacts(
        number=number,
        batches=batches,
        iterable=iterable,
        shared_out=not iterable and any(_shares_out(s) for s in (sampler, batch_sampler, inner)),
        own_collate=own_collate,
        drops=own_collate and _drops(loader.collate_fn, places),
        workers=loader.num_workers,
        samples=None if iterable else loader.dataset,
        batch_size=loader.batch_size or 0,
        collate=loader.collate_fn,
    )


def _shares_out(sampler: Any) -> bool:
    """By the attributes of torch's DistributedSampler and similar samplers."""
    return any(hasattr(sampler, name) for name in ("num_replicas", "num_processes"))


def _drops(collate: Any, places: CodePlaces) -> bool:
    """Whether the user's own collate function can drop samples, because it filters them."""
    while hasattr(collate, "func"):  # functools.partial
        collate = collate.func
    code = getattr(collate if hasattr(collate, "__code__") else vars(type(collate)).get("__call__"), "__code__", None)
    if code is None or not places.is_own(code.co_filename):
        return False
    functions = [n for n in ast.walk(parse(code.co_filename)) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    own = next((function for function in functions if _first_line(function) == code.co_firstlineno), None)
    return own is not None and any(map(_filters, ast.walk(own)))


def _first_line(function: ast.FunctionDef | ast.Lambda) -> int:
    decorators = function.decorator_list if isinstance(function, ast.FunctionDef) else []
    return decorators[0].lineno if decorators else function.lineno


def _filters(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Continue)
        or (isinstance(node, ast.comprehension) and bool(node.ifs))
        or (isinstance(node, ast.Name) and node.id == "filter")
    )
