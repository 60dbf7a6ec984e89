"""One cluster for all tests of this folder. Each test finds it whole, and may break it."""

from collections.abc import Iterator

import pytest

from real.cluster import Cluster, running_cluster, why_no_cluster


@pytest.fixture(scope="session")
def running() -> Iterator[Cluster]:
    if why := why_no_cluster():
        pytest.skip(why)
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.repair()
    running.plant()
    return running
