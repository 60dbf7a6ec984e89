"""The recorder of one rank: what it keeps, when it writes, and what it must not do to the training."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from forkpoint.errors import UsageError
from forkpoint.replicas import forensics
from forkpoint.replicas.forensics import Recorder, Ring, Step, layer_group, measure
from forkpoint.replicas.items import clean
from looping import for_each

pytestmark = pytest.mark.torch

Spoil = Callable[[int, torch.Tensor], torch.Tensor]


def untouched(_step: int, batch: torch.Tensor) -> torch.Tensor:
    return batch


class Trained:
    """A small model that is trained alone, step by step."""

    def __init__(self, folder: Path, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.ModuleDict(
            {"embed": nn.Linear(4, 8), "layers": nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 2)])}
        )
        self.recorder: Recorder = forensics.record(self.model, folder=folder, **options)

    def run(self, steps: int, spoil: Spoil = untouched, first: int = 0) -> None:
        for step in range(first, first + steps):
            batch = spoil(step, torch.randn(4, 4, generator=torch.Generator().manual_seed(step)))
            self.model.zero_grad()
            hidden = self.model["embed"](batch)
            for layer in self.model["layers"]:
                hidden = layer(hidden)
            loss = hidden.square().mean()
            self.recorder.before_reduction(loss=loss, data=range(4 * step, 4 * step + 4))
            loss.backward()
            self.recorder.step()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.recorder.path.read_text().splitlines()]


@pytest.fixture
def trained(tmp_path: Path):
    started: list[Trained] = []

    def start(**options: Any) -> Trained:
        started.append(Trained(tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.recorder.close()


def test_nothing_is_written_while_nothing_is_odd(trained) -> None:
    job = trained()
    job.run(60)

    assert not job.recorder.path.exists()


def test_on_demand_the_ring_is_written_once(trained) -> None:
    job = trained(ring=10)
    job.run(25)
    job.recorder.write()
    job.recorder.write()

    assert [line.get("step") for line in job.lines()] == [None, *range(16, 26)]
    assert job.lines()[0]["groups"] == ["embed", "layers.0", "layers.1"]
    assert job.lines()[1]["data"] == [60, 61, 62, 63]


def test_a_nan_is_written_at_once_with_the_tensor_nearest_to_the_loss(trained) -> None:
    job = trained()
    job.run(6, lambda step, batch: batch * float("nan") if step == 5 else batch)

    *_, last, trigger = job.lines()
    assert trigger == {"trigger": "a gradient is NaN or infinite", "step": 6, "tensor": "layers.1.bias"}
    assert last["norm"] == ["nan"] * 3
    assert last["nonfinite"] == [40, 72, 18]
    assert last["loss"] == "nan"


def test_a_spike_is_written_at_once_and_names_the_tensor_that_grew_most(trained) -> None:
    job = trained()
    job.run(31, lambda step, batch: batch * 50 if step == 30 else batch)

    trigger = job.lines()[-1]
    assert trigger["step"] == 31
    assert trigger["trigger"].startswith("the norm of the gradients is ")
    assert trigger["tensor"].endswith("weight")


def test_a_step_of_less_than_seven_times_the_median_norm_is_no_spike(trained) -> None:
    job = trained()
    job.run(40, lambda step, batch: torch.ones(4, 4) * (1.3 if step == 30 else 1.0))

    assert not job.recorder.path.exists()


def test_before_there_are_enough_steps_nothing_is_called_a_spike(trained) -> None:
    job = trained()
    job.run(19, lambda step, batch: batch * 50 if step == 18 else batch)

    assert not job.recorder.path.exists()


def test_norms_and_losses_with_long_tails_are_no_spikes() -> None:
    tails, ring = random.Random(3), Ring(200)
    for step in range(3000):
        measured = torch.tensor([[tails.lognormvariate(0.0, 0.5), 1.0, 0.0]])
        assert ring.add(Step(step, tails.lognormvariate(-2.0, 0.8), measured, [0], [], 0)) is None


def test_a_run_that_stays_broken_does_not_write_forever(trained) -> None:
    job = trained(ring=5)
    job.run(80, lambda step, batch: batch * float("nan"))

    assert sum("trigger" in line for line in job.lines()) == 50


def test_steps_between_are_neither_measured_nor_kept(trained) -> None:
    job = trained(every=4)
    job.run(12)
    job.recorder.write()

    assert [line["step"] for line in job.lines()[1:]] == [4, 8, 12]


def test_long_batches_keep_their_first_indices_and_say_how_many_are_left_out(trained) -> None:
    job = trained()
    job.recorder.before_reduction(data=torch.arange(1000))
    job.recorder.step()
    job.recorder.write()

    assert job.lines()[1]["data"] == list(range(256))
    assert job.lines()[1]["data_left_out"] == 744


def test_a_folder_that_cannot_be_written_warns_and_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = Trained(tmp_path / "file")
    with pytest.warns(UserWarning, match="forensics cannot be written"):
        job.run(1, lambda step, batch: batch * float("nan"))
    with pytest.warns(UserWarning, match="forensics cannot be written"):
        job.recorder.close()


def test_gradients_are_the_same_with_and_without_recording(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    batch = torch.randn(8, 4)
    model(batch).square().mean().backward()
    before = model.weight.grad.clone()
    model.zero_grad()
    recorder = forensics.record(model, folder=tmp_path)
    model(batch).square().mean().backward()
    recorder.close()

    assert torch.equal(model.weight.grad, before)


@for_each("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
def test_what_is_measured_of_a_tensor(dtype: torch.dtype) -> None:
    assert measure(torch.tensor([3.0, -4.0], dtype=dtype)).tolist() == [5.0, 4.0, 0.0]
    assert measure(torch.tensor([1.0, float("inf"), float("inf")], dtype=dtype)).tolist() == [float("inf")] * 2 + [2.0]
    assert measure(torch.empty(0, dtype=dtype)).tolist() == [0.0, 0.0, 0.0]
    assert measure(torch.tensor([float("nan"), float("inf")], dtype=dtype))[1:].isnan().tolist() == [True, False]


@for_each(
    ("name", "group"),
    [
        ("module.layers.3.attn.wq.weight", "layers.3"),
        ("_orig_mod.embed.weight", "embed"),
        ("h.0._checkpoint_wrapped_module.mlp.bias", "h.0"),
        ("12.weight", "12"),
    ],
)
def test_tensors_are_grouped_by_layer_whatever_wraps_them(name: str, group: str) -> None:
    assert layer_group(clean(name)) == group


@pytest.mark.parametrize("options", [{"every": 0}, {"ring": 0}])
def test_options_that_cannot_be_are_refused(options: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        forensics.record(nn.Linear(1, 1), folder=tmp_path, **options)
