"""Model configuration: defaults, and what the file of this node says."""
import json
import pathlib

DEFAULTS = {"vocab": 2048, "width": 256, "layers": 6, "ffn": 4096}


def load_config(rank):
    path = pathlib.Path(f"conf/node{rank}.json")
    extra = json.loads(path.read_text()) if path.exists() else {}
    return DEFAULTS | extra
