"""Embedding tables and their sizes."""
import json
import pathlib
import torch

WIDTH = 16


def shape_of(name, rank):
    """As the configuration of this node says, else as trained."""
    rows = {"words": 96, "positions": 64, "segments": 4, "output": 96}
    local = pathlib.Path(f"conf/node{rank}.json")
    if local.exists():
        rows |= json.loads(local.read_text())
    return rows[name], WIDTH


def read_tables(name):
    return torch.ones(shape_of(name, 0)) * len(name)
