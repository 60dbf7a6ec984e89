"""What can be asked without other ranks."""

from pathlib import Path

import pytest
import torch
from torch import nn

from forkpoint import replicas
from forkpoint.replicas.items import clean, model_items, optimizer_items
from looping import for_each

pytestmark = pytest.mark.torch

ALL = (0, 1, 2)


def test_a_process_alone_has_nothing_to_compare_and_writes_nothing(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    watch = replicas.watch(model, torch.optim.SGD(model.parameters()), every=1, folder=str(tmp_path))

    assert [watch.step({"loss": 1.0}), watch.gradients(), replicas.check(model, folder=str(tmp_path))] == [None] * 3
    watch.close()
    assert list(tmp_path.iterdir()) == []


def test_what_makes_no_sense_is_refused_with_the_next_step() -> None:
    with pytest.raises(replicas.ReplicasError, match=r"give replicas\.watch a model"):
        replicas.watch()
    with pytest.raises(replicas.ReplicasError, match="call gradients"):
        replicas.watch(nn.Linear(2, 2), check_gradients=True)
    with pytest.raises(replicas.ReplicasError, match="recheck needs two ranks"):
        replicas.recheck(suspect=0)


def test_tied_parameters_count_once_and_running_statistics_not_at_all() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    model.register_buffer("ema", torch.zeros(2))
    model.register_buffer("table", torch.zeros(2))

    names = [item.name for item in model_items(model, ALL, ["ema*"])]

    assert names == ["0.weight", "0.bias", "1.weight", "1.bias", "2.bias", "table"]
    assert {item.ranks for item in model_items(model, ALL, [])} == {ALL}


def test_state_of_the_optimizer_is_named_after_its_parameter() -> None:
    model = nn.Linear(2, 1)
    extra = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([*model.parameters(), extra])
    assert list(optimizer_items(model, [optimizer], ALL)) == []

    (model(torch.ones(1, 2)).sum() + extra.sum()).backward()
    optimizer.step()

    assert [item.name for item in optimizer_items(model, [optimizer], ALL)] == [
        f"{name}.{state}"
        for name in ("weight", "bias", "parameter 2 of Adam")
        for state in ("exp_avg", "exp_avg_sq", "step")
    ]


@for_each(
    ("name", "written"),
    [
        ("module.body.weight", "body.weight"),
        ("_orig_mod.module.a._checkpoint_wrapped_module.b", "a.b"),
        ("module", "module"),
    ],
)
def test_names_are_those_the_user_wrote(name: str, written: str) -> None:
    assert clean(name) == written
