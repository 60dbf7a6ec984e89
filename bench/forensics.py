"""What recording gradients before reduction costs: time per step with and without it, in turns, in one process.

    python -m bench.forensics [--device cuda] [--layers 12] [--width 1024] [--steps 20]

One rank alone trains a stack of transformer layers; nothing is reduced, so all of the difference is the recorder. On a
GPU wall time until it has done all, on the CPU seconds of this process: others run there too. The best of several
rounds counts on each side. "Measuring alone" is what all hooks of one step do, without the step around them: on a busy
machine it is the steadier number.
"""

import argparse
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from forkpoint.replicas import forensics
from forkpoint.replicas.forensics import measure

ROUNDS = 5


def make_model(layers: int, width: int, device: str, dtype: torch.dtype) -> nn.Module:
    one = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(one, layers, enable_nested_tensor=False).to(device, dtype)


def time_steps(step: Callable[[], object], steps: int, device: str) -> float:
    clock = time.perf_counter if device == "cuda" else time.process_time
    for _ in range(2):
        step()
    _finish(device)
    began = clock()
    for _ in range(steps):
        step()
    _finish(device)
    return (clock() - began) / steps


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def train_step(model: nn.Module, batch: Tensor) -> Tensor:
    model.zero_grad()
    loss = model(batch).float().square().mean()
    loss.backward()
    return loss


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    args = parse()
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = make_model(args.layers, args.width, args.device, dtype)
    batch = torch.randn(1, args.tokens, args.width, device=args.device, dtype=dtype)
    indices = range(8)

    def plain() -> None:
        train_step(model, batch)

    without, with_it = [], []
    for _ in range(ROUNDS):
        without.append(time_steps(plain, args.steps, args.device))
        with tempfile.TemporaryDirectory() as folder:
            recorder = forensics.record(model, folder=folder)

            def recorded(recorder: forensics.Recorder = recorder) -> None:
                recorder.before_reduction(loss=train_step(model, batch), data=indices)
                recorder.step()

            with_it.append(time_steps(recorded, args.steps, args.device))
            recorder.close()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    alone = time_steps(lambda: [measure(gradient) for gradient in gradients], args.steps, args.device)
    gigabytes = sum(gradient.numel() * gradient.element_size() for gradient in gradients) / 1e9
    step, recorded_step = min(without), min(with_it)
    print(f"{len(gradients)} tensors, {gigabytes:.2f} GB of gradients, {args.device}")
    print(f"step {1e3 * step:.1f} ms, with recording {1e3 * recorded_step:.1f} ms ({recorded_step / step - 1:+.1%})")
    print(
        f"measuring alone {1e3 * alone:.2f} ms: {alone / step:.1%} of a step, {1e3 * alone / gigabytes:.1f} ms per GB"
    )


if __name__ == "__main__":
    main()
