"""What comparing replicas costs: milliseconds per GB against one plain read of the same memory in the same run.

    python -m bench.replicas --device cpu --gb 0.5
    python -m bench.replicas --device cuda --gb 8

The floor is `sum()` of the same bytes as int64 or, on a GPU, half of a copy where that is faster. On a CPU the time of the
process is taken, with one thread, since other jobs may share the cores. Then the share of a training step: AdamW on a small transformer, checked every 100 steps.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from forkpoint.replicas.checksums import bytes_of, checksums, method, words_of

KEY, TURN, FIRST, SECOND = 0x9E3779B97F4A7C15, 23, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Numbers of the Triton kernel."""
ROUNDS = 15
EVERY = 100


def seconds(function: Callable[[], object], device: torch.device) -> float:
    if device.type == "cpu":
        began = time.process_time()
        function()
        return time.process_time() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(torch.cuda.current_stream())
    function()
    end.record(torch.cuda.current_stream())
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def measure(functions: dict[str, Callable[[], object]], device: torch.device) -> dict[str, tuple[float, float]]:
    """Best and median of rounds through all of them, so that a disturbance meets each alike."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(ROUNDS):
        for name, function in functions.items():
            taken[name].append(seconds(function, device))
    return {name: (min(times), statistics.median(times)) for name, times in taken.items()}


def bandwidth(device: torch.device, size: int) -> None:
    flat = torch.randn(size // 4, device=device)
    words = flat.view(torch.int64)
    layers = list(flat[: size // 8].split((4 << 20) // 4)) + list(flat[size // 8 :].split((64 << 20) // 4))
    functions: dict[str, Callable[[], object]] = {
        "sum() of int64": words.sum,
        "one tensor": lambda: checksums([flat]),
        f"{len(layers)} tensors of 4 and 64 MB": lambda: checksums(layers),
    }
    if device.type == "cuda":
        other = torch.empty_like(words)
        functions["copy (twice the memory)"] = lambda: other.copy_(words)
    found = measure(functions, device)
    floor = min(found["sum() of int64"][0], found.get("copy (twice the memory)", (float("inf"), 0.0))[0] / 2)
    print(f"{method(device)} on {device}, {size / 1e9:.2f} GB, best of {ROUNDS}")
    print(f"floor: {floor * 1e3 / (size / 1e9):.3f} ms per GB ({size / 1e9 / floor:.0f} GB/s)")
    for name, (best, median) in found.items():
        per_gb = best * 1e3 / (size / 1e9)
        middle = median * 1e3 / (size / 1e9)
        print(f"  {name:32} {per_gb:8.3f} ms per GB (median {middle:.3f}), {best / floor:.2f} times the floor")


def step_share(device: torch.device, width: int, layers: int, tokens: int) -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, device=device), layers
    )
    optimizer: Any = torch.optim.AdamW(model.parameters())
    batch = torch.randn(max(1, tokens // 256), min(tokens, 256), width, device=device)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def state() -> list[Tensor]:
        moments = [value for kept in optimizer.state.values() for value in kept.values()]
        return [*model.parameters(), *moments]

    step()
    size = sum(bytes_of(tensor).numel() for tensor in state())
    # Twice: the step before a check is remembered, to recognise what is stale.
    found = measure({"step": step, "check": lambda: [checksums(state()) for _ in range(2)]}, device)
    share = found["check"][1] / (EVERY * found["step"][1])
    print(f"{size / 1e9:.3f} GB in {len(state())} tensors, batch of {tokens} tokens on {device}:")
    print(f"  step {found['step'][1] * 1e3:.2f} ms, checksums of a check {found['check'][1] * 1e3:.2f} ms (medians)")
    print(f"  every {EVERY} steps: {share:.4%} of the time")


def plain_checksum(content: Tensor, lanes: int, rows: int) -> int:
    """What the kernel should give, in plain Python."""
    words = [word % 2**64 for word in words_of(content, torch.int64).tolist()]
    total, size = 0, lanes * rows
    for chunk, begin in enumerate(range(0, len(words), size)):
        states = [(chunk * lanes + lane + 1) * KEY % 2**64 for lane in range(lanes)]
        for at, word in enumerate(words[begin : begin + size]):
            state = states[at % lanes] ^ word
            states[at % lanes] = (state << TURN | state >> 64 - TURN) * FIRST % 2**64
        for state in states:
            mixed = (state ^ state >> 31) * SECOND % 2**64
            total += mixed ^ mixed >> 29
    return (total + 2**63) % 2**64 - 2**63


def verify(device: torch.device) -> None:
    """On a GPU: the kernel computes what torch's operations compute, for every kind of size."""
    from forkpoint.replicas.triton_sums import LANES, ROWS  # noqa: PLC0415 - where Triton is

    sizes = [0, 1, 2, 3, 5, 4095, 4096, 4097, 65536, 65537, 1_000_003]
    tensors = [torch.randint(0, 256, (n,), dtype=torch.uint8, device=device) for n in sizes]
    whole = torch.randn(1_000_001, device=device)
    tensors += [whole[1:], whole.to(torch.bfloat16)[3:], whole[:1000].reshape(10, 100).t(), whole > 0]
    expected = [plain_checksum(bytes_of(tensor), LANES, ROWS) for tensor in tensors]
    assert checksums(tensors).read() == expected, "the kernel is wrong"
    missed = 0
    before = checksums([whole]).read()
    bits = whole.view(torch.int32)
    for place in torch.randint(0, whole.numel(), (200,)).tolist():
        bits[place] ^= 1 << place % 31
        missed += checksums([whole]).read() == before
        bits[place] ^= 1 << place % 31
    print(f"kernel equals plain torch on {len(tensors)} tensors; {missed} of 200 flipped bits missed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gb", type=float, default=0.25)
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_num_threads(1)
    if device.type == "cuda":
        verify(device)
    bandwidth(device, int(given.gb * 1e9) // 8 * 8)
    width, layers, tokens = (1024, 8, 8192) if device.type == "cuda" else (256, 2, 1024)
    step_share(device, width, layers, tokens)


if __name__ == "__main__":
    main()
