"""Known library functions (`apis.toml`), and what the name of a variable or function tells about its value."""

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

# ---------------------------------------------------------------------------------------------------------------------
# Known library functions, read from `apis.toml`.


class ApiKind(StrEnum):
    COLLECTIVE = "collective"
    P2P = "p2p"
    SETUP = "setup"
    TEARDOWN = "teardown"
    IMPLICIT = "implicit"
    """A forward or backward pass of a wrapped model."""


class Origin(StrEnum):
    """Why a value can differ by rank."""

    RANK = "rank"
    LOCAL_DATA = "local-data"
    EXCEPTION = "exception"
    ORDER = "order"
    TIME = "time"
    RANDOM = "random"
    MEMORY = "memory"
    FILES = "files"
    TIMING = "timing"


class Strength(StrEnum):
    """How certain it is that the value differs in some run."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class Api:
    """A call that communicates."""

    op: str
    kind: ApiKind
    made_equal: int | str = ""
    """What is the same on all ranks afterwards: the position of an argument, or `result`."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    origin: Origin
    strength: Strength
    text: str
    calls: frozenset[str]
    methods: frozenset[str]
    environment: frozenset[str]
    receiver: tuple[str, ...]
    unless_equal: bool
    selects: bool
    """The size differs as well, not only the content."""


@dataclass(frozen=True, slots=True)
class MethodApi:
    api: Api
    receiver: tuple[str, ...]
    """One of these words must be in the receiver's name; empty if the method's name is enough."""
    classes: tuple[str, ...]
    """If not empty, the receiver must have a class whose dotted name starts with one of these ..."""
    class_ends: str
    """... and ends with this."""


@dataclass(frozen=True, slots=True)
class Apis:
    modules: tuple[str, ...]
    distinct: frozenset[str]
    functions: dict[str, Api]
    methods: dict[str, tuple[MethodApi, ...]]
    calls: frozenset[str]
    """Dotted names of functions that communicate, if the last word alone says nothing."""
    wrappers: frozenset[str]
    sharded: frozenset[str]
    """Wrappers that keep a part of each parameter on each rank."""
    constructors: frozenset[str]
    metrics: frozenset[str]
    distributed: tuple[str, ...]
    sources: tuple[ValueSource, ...]
    words: dict[str, frozenset[str]]


@cache
def known_apis() -> Apis:
    table = tomllib.loads(files("forkpoint.source").joinpath("apis.toml").read_text("utf-8"))
    functions = {
        name: Api(name, ApiKind(kind), made_equal)
        for kind, named in table["functions"].items()
        for name, made_equal in named.items()
    }
    methods: dict[str, tuple[MethodApi, ...]] = {}
    for entry in table["method"]:
        for name in entry["names"]:
            methods[name] = (*methods.get(name, ()), _method(name, entry))
    wrappers = table["wrappers"]
    return Apis(
        modules=tuple(table["modules"]),
        distinct=frozenset(table["distinct"]),
        functions=functions,
        methods=methods,
        calls=frozenset(table["calls"]),
        wrappers=frozenset(wrappers["names"]),
        sharded=frozenset(wrappers["sharded"]),
        constructors=frozenset(wrappers["communicating_constructors"]),
        metrics=frozenset(wrappers["metric_bases"]),
        distributed=tuple(table["distributed"]["modules"]),
        sources=tuple(_value_source(s) for s in table["source"]),
        words={name: frozenset(words) for name, words in table["words"].items()},
    )


def _method(name: str, table: dict[str, Any]) -> MethodApi:
    return MethodApi(
        api=Api(name, ApiKind(table.get("kind", "collective")), table.get("made_equal", "")),
        receiver=tuple(table.get("receiver", ())),
        classes=tuple(table.get("class", ())),
        class_ends=table.get("class_ends", ""),
    )


def _value_source(table: dict[str, Any]) -> ValueSource:
    return ValueSource(
        origin=Origin(table["origin"]),
        strength=Strength(table["strength"]),
        text=table["text"],
        calls=frozenset(table.get("calls", ())),
        methods=frozenset(table.get("methods", ())),
        environment=frozenset(table.get("environment", ())),
        receiver=tuple(table.get("receiver", ())),
        unless_equal=table.get("unless_equal", False),
        selects=table.get("selects", False),
    )


# ---------------------------------------------------------------------------------------------------------------------
# What the name of a variable or function tells about its value.


@cache
def is_rank_word(name: str) -> bool:
    """`rank`, `local_rank`, `get_data_parallel_rank`, `is_main_process`."""
    words = known_apis().words
    plain = name.lower().strip("_").removeprefix("get_").removeprefix("my_").removeprefix("torch_")
    if plain.endswith(tuple(words["not_rank"])) or "per_" in plain or plain.startswith("num_"):
        return False
    return plain in words["rank"] or plain.endswith("_rank") or ("_rank_" in plain and plain.startswith("is_"))


_WORDS_OF_DIMENSIONS = {
    "pipeline": ("pipeline", "pp", "stage"),
    "tensor": ("tensor", "tp", "model"),
    "context": ("context", "cp", "sequence", "sp", "ulysses"),
    "data": ("data", "dp", "fsdp", "ddp", "replicate", "shard"),
    "expert": ("expert", "ep"),
}


@cache
def dimensions_in(text: str) -> frozenset[str]:
    """Dimensions of a mesh of ranks that a name is about: `get_tensor_model_parallel_rank`, `self.cp_group`."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    found = {name for name, known in _WORDS_OF_DIMENSIONS.items() if words & set(known)}
    # `data_parallel` and `parallel` alone are distinguished by the word before; `data` alone is not a dimension.
    return frozenset(found - ({"data"} if "data" in words and not words & {"parallel", "dp", "fsdp", "ddp"} else set()))


@cache
def is_low_rank_word(name: str) -> bool:
    """`LoRALinear`, `args.lora`: what is called rank there is the size of a matrix."""
    plain = name.lower().replace("_", "")
    return any(word in plain for word in known_apis().words["low_rank"])


@cache
def is_loader_word(name: str) -> bool:
    plain = name.lower().strip("_")
    words = known_apis().words["loader"]
    first, _, last = plain.rpartition("_")
    is_iterator = last == "iterator" and first in known_apis().words["kinds_of_batch"]
    return plain in words or plain.endswith(("_loader", "dataloader")) or is_iterator


@cache
def is_data_word(name: str) -> bool:
    plain = name.lower().strip("_")
    words = known_apis().words["data"]
    first, _, last = plain.rpartition("_")
    is_batch = last == "batch" and first in known_apis().words["kinds_of_batch"]
    return plain in words or plain.endswith("_loss") or is_batch


@cache
def is_parameter_word(name: str) -> bool:
    """A part of the model: of the same size on all ranks, or sharded on purpose."""
    last = name.lower().strip("_").rpartition("_")[2].rstrip("s")
    return last in {
        "p",
        "param",
        "parameter",
        "weight",
        "bia",
        "buffer",
        "w",
        "t",
        "tensor",
        "v",
        "value",
        "module",
        "shard",
    }


@cache
def is_inbox_word(name: str) -> bool:
    """`self.waiting_requests`: holds what has reached this rank and has not been handled."""
    words = name.lower().strip("_").split("_")
    return words[-1].rstrip("s") in known_apis().words["inbox"] or words[0] in known_apis().words["in_flight"]


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
def runs_on_one_rank(decorator: str) -> bool:
    """`@rank_zero_only`: the body runs on one rank."""
    return decorator.strip("_") in known_apis().words["one_rank_decorators"]


@cache
def is_world_word(name: str) -> bool:
    """Whether the job is distributed, or over how many ranks: the same on all ranks."""
    plain = name.lower().strip("_").removeprefix("get_")
    return plain in known_apis().words["world"] or plain.endswith(("_parallel_size", "_world_size"))


@cache
def is_device_word(name: str) -> bool:
    """`device`, `DEVICE`, `get_device`: ranks have different ones, and do the same on them."""
    return name.lower().strip("_").removeprefix("get_").rpartition("_")[2] == "device"


@cache
def is_counter_word(name: str) -> bool:
    """`max_steps`, `epoch`: counts what all ranks do together."""
    return name.lower().strip("_").rpartition("_")[2].rstrip("s") in {"step", "epoch", "iteration", "iter"}


@cache
def is_setting_word(name: str) -> bool:
    """`use_fused_kernels`: what the job was started with."""
    return name.startswith(("use_", "enable_", "disable_"))
