import pytest

from forkpoint.traces.native import NativePacker
from native.compare import Pair


@pytest.fixture
def packer() -> NativePacker:
    packer = NativePacker.if_installed()
    if packer is None:
        pytest.skip("forkpoint-native is not installed (pip install ./native; needs cargo)")
    return packer


@pytest.fixture
def pair(packer: NativePacker) -> Pair:
    return Pair(packer)
