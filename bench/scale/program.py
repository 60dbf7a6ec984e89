"""What one training step of a pipeline stage communicates: Megatron's 1F1B schedule over a model with experts."""

from dataclasses import dataclass
from functools import cache

from bench.pickler import Frame
from bench.scale.mesh import Kind, Mesh

_LAYERS = 2
"""Per stage."""
_MICROBATCHES = 8
_HIDDEN = ((4096, 1, 4096), (4096, 1, 4096))
_TOKENS = ((8192, 4096), (8192, 4096))
_BUCKETS = (40_000_000, 25_165_824)
_FRAMES = 20

_PACKAGES = "/opt/conda/envs/train/lib/python3.11/site-packages/"
_C10D = _PACKAGES + "torch/distributed/distributed_c10d.py"
_MODULE = _PACKAGES + "torch/nn/modules/module.py"
_CORE = "/srv/megatron/core/"
_SCHEDULES = _CORE + "pipeline_parallel/schedules.py"
_P2P = _CORE + "pipeline_parallel/p2p_communication.py"
_TRAINING = "/srv/megatron/training/training.py"


@dataclass(frozen=True, slots=True)
class Call:
    """A collective."""

    kind: Kind
    name: str
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    dtype: str
    stack: tuple[Frame, ...]
    backward: bool = False
    """Issued by the autograd thread."""


@dataclass(frozen=True, slots=True)
class Message:
    """To or from a neighbouring stage; stages are the group ranks of the pipeline group."""

    is_send: bool
    source: int
    destination: int
    size: tuple[int, ...]
    dtype: str
    stack: tuple[Frame, ...]

    @property
    def channel(self) -> tuple[int, int]:
        return self.source, self.destination


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one `batch_isend_irecv`: they finish together or not at all."""

    messages: tuple[Message, ...]
    stack: tuple[Frame, ...]


Unit = Call | Batch
"""What a rank waits for as one."""


def one_step(mesh: Mesh, stage: int) -> tuple[Unit, ...]:
    """The units of one training step, which every rank of the stage repeats."""
    return (*_pipeline(mesh.pp, stage), *_end_of_step(mesh))


def entries(unit: Unit) -> int:
    """How many entries of the recorder a unit takes: a batch has one for each message and one that closes it."""
    return 1 if isinstance(unit, Call) else len(unit.messages) + 1


@cache
def frame(name: str, filename: str, line: int) -> Frame:
    return Frame(name, filename, line)


def _pipeline(stages: int, stage: int) -> list[Unit]:
    """Warm-up, one forward and one backward in turn, cool-down."""
    link = _Link(stage, stages)
    warm_up = min(stages - stage - 1, _MICROBATCHES)
    steady = _MICROBATCHES - warm_up
    units: list[Unit] = []
    for _ in range(warm_up):
        units += [*link.batch("recv_forward", 2100), *_forward(2110), *link.batch("send_forward", 2130)]
    units += link.batch("recv_forward", 2150)
    for n in range(steady):
        units += [*_forward(2160), *link.batch("send_forward_recv_backward", 2190), *_backward(2210)]
        last = n == steady - 1
        units += link.batch("send_backward" if last else "send_backward_recv_forward", 2225 if last else 2230)
    for _ in range(warm_up):
        units += [*link.batch("recv_backward", 2260), *_backward(2270), *link.batch("send_backward", 2280)]
    return units


@dataclass(frozen=True, slots=True)
class _Link:
    """A stage's messages. A stage without a neighbour leaves that message out, and a batch without messages too."""

    stage: int
    stages: int

    def batch(self, function: str, line: int) -> list[Unit]:
        wanted = {
            "send_forward": (True, 1),
            "recv_forward": (False, -1),
            "send_backward": (True, -1),
            "recv_backward": (False, 1),
        }
        chosen = [by for name, by in wanted.items() if name in function]
        caller = (frame(function, _P2P, 400 + line % 100), frame("forward_backward_1f1b", _SCHEDULES, line), *_outer())
        messages = tuple(self._message(by, caller, is_send=send) for send, by in chosen if self._has(by))
        closing = (
            frame("_coalescing_manager", _C10D, 2785),
            frame("batch_isend_irecv", _C10D, 2901),
            frame("_communicate", _P2P, 312),
            *caller,
        )
        return [Batch(messages, closing)] if messages else []

    def _has(self, by: int) -> bool:
        return 0 <= self.stage + by < self.stages

    def _message(self, by: int, caller: tuple[Frame, ...], *, is_send: bool) -> Message:
        ends = (self.stage, self.stage + by)
        source, destination = ends if is_send else ends[::-1]
        called = frame("isend", _C10D, 2552) if is_send else frame("irecv", _C10D, 2610)
        stack = (called, frame("batch_isend_irecv", _C10D, 2903), frame("_communicate", _P2P, 312), *caller)
        return Message(is_send, source, destination, _HIDDEN[0], "BFloat16", stack)


def _forward(line: int) -> list[Unit]:
    caller = (frame("forward_step", _SCHEDULES, 380), frame("forward_backward_1f1b", _SCHEDULES, line), *_outer())
    units: list[Unit] = []
    for layer in range(_LAYERS):
        block = _block(layer)
        units += [
            _call(Kind.TP, "all_reduce", _HIDDEN, "BFloat16", ("attention.py", 610), (*block, *caller)),
            _call(Kind.EP, "all_to_all", _TOKENS, "BFloat16", ("token_dispatcher.py", 455), (*block, *caller)),
            _call(Kind.EP, "all_to_all", _TOKENS, "BFloat16", ("token_dispatcher.py", 520), (*block, *caller)),
            _call(Kind.TP, "all_reduce", _HIDDEN, "BFloat16", ("mlp.py", 190), (*block, *caller)),
        ]
    return units


def _backward(line: int) -> list[Unit]:
    """The autograd thread does not know who called it, only which functions of the model it runs."""
    engine = (frame("_engine_run_backward", _PACKAGES + "torch/autograd/graph.py", 829),)
    caller = (*engine, frame("backward_step", _SCHEDULES, 470), frame("forward_backward_1f1b", _SCHEDULES, line))
    units: list[Unit] = []
    for layer in reversed(range(_LAYERS)):
        block = _block(layer)
        units += [
            _call(Kind.TP, "all_reduce", _HIDDEN, "BFloat16", ("mlp.py", 260), (*block, *caller), backward=True),
            _call(Kind.EP, "all_to_all", _TOKENS, "BFloat16", ("mappings.py", 390), (*block, *caller), backward=True),
            _call(Kind.EP, "all_to_all", _TOKENS, "BFloat16", ("mappings.py", 402), (*block, *caller), backward=True),
            _call(Kind.TP, "all_reduce", _HIDDEN, "BFloat16", ("attention.py", 700), (*block, *caller), backward=True),
        ]
    return units


def _end_of_step(mesh: Mesh) -> list[Unit]:
    """Gradients, the optimiser, and what is logged."""
    finalize = (frame("finalize_model_grads", _CORE + "distributed/finalize_model_grads.py", 250), *_outer())
    optimizer = (frame("step_with_ready_grads", _CORE + "optimizer/optimizer.py", 490), *_outer())
    units: list[Unit] = [
        _call(Kind.TP, "all_reduce", ((16384,), (16384,)), "Float", ("finalize_model_grads.py", 120), finalize),
        _call(Kind.EP, "all_reduce", ((64,), (64,)), "Float", ("finalize_model_grads.py", 190), finalize),
    ]
    shards = mesh.dp * mesh.ep
    for size in _BUCKETS:  # in a loop: all from one line
        sizes = ((size,), (size // shards,))
        units.append(
            _call(Kind.DP, "_reduce_scatter_base", sizes, "Float", ("param_and_grad_buffer.py", 340), finalize)
        )
    units.append(_call(Kind.WORLD, "all_reduce", ((1,), (1,)), "Float", ("clip_grads.py", 150), optimizer))
    for size in _BUCKETS:
        sizes = ((size // shards,), (size,))
        units.append(
            _call(Kind.DP, "_all_gather_base", sizes, "BFloat16", ("param_and_grad_buffer.py", 210), optimizer)
        )
    units.append(_call(Kind.WORLD, "all_reduce", ((2,), (2,)), "Double", ("training_log.py", 88), _outer()))
    return units


_LEAVES = {
    "all_reduce": ("all_reduce", 3245),
    "all_to_all": ("all_to_all_single", 4930),
    "_all_gather_base": ("all_gather_into_tensor", 4177),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 4715),
}


def leaf(op: str) -> tuple[Frame, ...]:
    """The frames of torch in which an operation is issued."""
    return frame(*_LEAVES[op][:1], _C10D, _LEAVES[op][1]), frame(
        "wrapper", _PACKAGES + "torch/distributed/c10d_logger.py", 83
    )


def _call(  # noqa: PLR0913 a call has as many parts
    kind: Kind,
    op: str,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: str,
    site: tuple[str, int],
    caller: tuple[Frame, ...],
    *,
    backward: bool = False,
) -> Call:
    file, line = site
    stack = (*leaf(op), frame(f"reduce_in_{file.removesuffix('.py')}", _CORE + file, line), *caller)
    return Call(kind, f"nccl:{op}", *sizes, dtype, stack[:_FRAMES], backward)


def _block(layer: int) -> tuple[Frame, ...]:
    """As deep as a transformer layer lies."""
    modules = (frame("_call_impl", _MODULE, 1786), frame("_wrapped_call_impl", _MODULE, 1775))
    return (
        frame("forward", _CORE + "transformer/transformer_layer.py", 400 + 20 * layer),
        *modules,
        frame("forward", _CORE + "transformer/transformer_block.py", 530),
        *modules,
        frame("forward", _CORE + "models/gpt/gpt_model.py", 290),
        *modules,
    )


def _outer() -> tuple[Frame, ...]:
    return (
        frame("train_step", _TRAINING, 1402),
        frame("train", _TRAINING, 1988),
        frame("pretrain", _TRAINING, 830),
        frame("<module>", "/srv/pretrain_gpt.py", 280),
    )
