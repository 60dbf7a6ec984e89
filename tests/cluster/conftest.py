"""Real engines take a minute, most of which they wait: both begin with the first test of this folder, beside the others."""

import importlib.util
from collections.abc import Iterator

import pytest

from cluster.machines import Scenario, begin

PROGRAMS = {"test_ray.py": ("ray", "ray_scenarios.py"), "test_monarch.py": ("monarch", "monarch_scenarios.py")}


@pytest.fixture(scope="session", autouse=True)
def scenarios(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Scenario]]:
    """By engine; those that a selected test asks for."""
    asked = [PROGRAMS[name] for name in sorted({item.path.name for item in request.session.items} & PROGRAMS.keys())]
    begun = {engine: begin(program, tmp_path_factory.mktemp("m")) for engine, program in asked if is_there(engine)}
    yield begun
    for scenario in begun.values():
        scenario.end()


def is_there(engine: str) -> bool:
    return importlib.util.find_spec(engine) is not None
