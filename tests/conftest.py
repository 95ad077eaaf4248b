"""What all tests share: hypothesis without deadlines, two numba threads, and the devices that are here."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import pytest

STATE = TemporaryDirectory(prefix="fedkge-state-")
os.environ["XDG_STATE_HOME"] = STATE.name  # what sites spend in tests is not in the accounts of the user
os.environ.setdefault("NUMBA_NUM_THREADS", "2")  # so that one and two threads can be compared on any machine

with suppress(ModuleNotFoundError):  # a GPU machine may have torch and pytest alone
    from hypothesis import settings

    settings.register_profile("fedkge", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("fedkge")


@pytest.fixture(scope="session", autouse=True)
def one_kernel_thread() -> None:
    """Kernels on one thread unless a test asks for more: processes would wait for each other's threads."""
    if find_spec("numba") is not None:
        import numba

        numba.set_num_threads(1)


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> object:
    """Every kind of device that has kernels of its own; one that is not here is skipped."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if request.param == "cpu" and find_spec("numba") is None:
        pytest.skip("the CPU kernels need numba")
    return torch.device(request.param)
