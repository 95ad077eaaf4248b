"""What holds with the tests' own carrier holds over NVIDIA FLARE: tables, byte counts, forged answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lasting_flare import LastingFlare
from network_of_sites import FORGED, WITH_HUB, assert_refused, assert_same_as_in_process
from odd_site import OddSite

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedkge[network]'")
pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def flare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingFlare]:
    made = LastingFlare(tmp_path_factory.mktemp("flare"), "abc")
    yield made
    made.stop()


@pytest.mark.parametrize("method", WITH_HUB)
def test_every_method_ends_with_the_tables_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flare: LastingFlare, method: str
) -> None:
    flare.lend(monkeypatch)
    assert_same_as_in_process(tmp_path, method)


@pytest.mark.parametrize("odd", FORGED)
def test_a_forged_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flare: LastingFlare, odd: str
) -> None:
    flare.lend(monkeypatch)
    assert_refused(tmp_path, partial(OddSite, odd=odd))
