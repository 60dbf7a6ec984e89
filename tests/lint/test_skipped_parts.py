"""A rank whose data leaves nothing, or is finished, does not run a part of the model; and code in which that is no hazard."""

import textwrap
from pathlib import Path

from forkpoint.lint import Options, lint
from looping import for_each
from tests.lint.pairs import HEAD, Pair, check_pair
from tests.lint.samples import program_of

PASSED = """
        from torch import nn

        def denoise(targets, embed):
            longest = max([len(t["labels"]) for t in targets])
            if longest == 0:
                return {nothing}
            return embed(targets)

        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.class_embed = nn.Embedding(8, 8)

            def forward(self, targets):
                return denoise(targets, self.class_embed)
"""
EXPERTS = """
        from torch import nn

        class Mixture(nn.Module):
            def __init__(self, experts):
                super().__init__()
                self.experts = nn.ModuleList(experts)

            def {name}(self, hidden, chosen):
                for place, expert in enumerate(self.experts):
                    tokens = torch.where(chosen == place)[0]
                    if tokens.numel() == 0:
                        continue
                    hidden[tokens] = self.experts[place](hidden[tokens])
                return hidden
"""
SETTINGS = """
        from torch import nn

        class Model(nn.Module):
            def __init__(self, head):
                super().__init__()
                self.head = head

            def forward(self, {asked}, x):
                if {asked}.sum() > 0:
                    x = self.head(x)
                return x
"""
FINISHED = """
        import deepspeed
        from torch import nn

        class Writer(nn.Module):
            def write(self, ids, limit, sharded):
                for _ in range(limit):
                    ids, finished = self(ids)
                    if {asked}:
                        break
                return ids
"""
EXISTING = """
        import os

        def save(path, state):
            if os.path.exists(path):
                raise {error}(path)
            dist.all_reduce(state)
"""
OWN_DISK = """
        import os

        def load(folder, name, state):
            path = os.path.join({folder}, name)
            if os.path.exists(path):
                return torch.load(path)
            dist.broadcast(state, src=0)
            return state
"""
PAIRS = {
    "a part that a caller passes": Pair(
        "module-skipped-by-data",
        PASSED.format(nothing="None"),
        PASSED.format(nothing="0 * embed(torch.zeros(1)).sum()"),
    ),
    "an expert without tokens, and prediction": Pair(
        "module-skipped-by-data", EXPERTS.format(name="forward"), EXPERTS.format(name="predict")
    ),
    "data, and a setting": Pair(
        "module-skipped-by-data",
        SETTINGS.format(asked="mask"),
        SETTINGS.format(asked="count: int").replace("if count: int", "if count"),
    ),
    "a loop that ends when this rank's samples are finished, and one that knows of sharded weights": Pair(
        "exit-before-collective",
        FINISHED.format(asked="torch.all(finished)"),
        FINISHED.format(asked="not sharded and torch.all(finished)"),
    ),
    "a file on the disk of one node, and on one that nodes may share": Pair(
        "exit-before-collective", OWN_DISK.format(folder='"/tmp/cache"'), OWN_DISK.format(folder="folder")
    ),
    "an output that is there already, and an input that is not": Pair(
        "raise-on-some-ranks", EXISTING.format(error="FileExistsError"), EXISTING.format(error="ValueError")
    ),
}


ON_ONE_RANK = """
        import os

        def save(path, state):
            if dist.get_rank() == 0:
                if os.path.exists(path):
                    raise FileExistsError(path)
            dist.all_reduce(state)
"""


def test_a_check_that_one_rank_makes_is_not_said_to_be_made_by_each(tmp_path: Path) -> None:
    program = program_of(tmp_path, HEAD + textwrap.dedent(ON_ONE_RANK))

    found = lint(program, Options()).violations

    assert [v.rule for v in found] == ["raise-on-some-ranks"]
    assert "only some ranks make this check" in found[0].message


@for_each("what", PAIRS)
def test_a_rank_that_skips_a_part_is_found(what: str, tmp_path: Path) -> None:
    check_pair(PAIRS[what], tmp_path)
