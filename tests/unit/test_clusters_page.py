"""docs/clusters.md: runs are the example's but for their mode; the page is what its file makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedkge.config import read_toml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def clusters(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    pytest.importorskip("numba")
    return benchmark("clusters")


@pytest.fixture(scope="module")
def written(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("clusters_page")


@pytest.fixture
def kept() -> Any:
    return json.loads((DOCS / "clusters.json").read_text())


def test_the_page_is_what_the_file_makes(written: ModuleType, kept: Any) -> None:
    assert written.page(kept) == (DOCS / "clusters.md").read_text()


def test_runs_differ_from_the_example_in_nothing_but_what_is_said(
    clusters: ModuleType, tmp_path: Path
) -> None:
    example = read_toml(clusters.PRESET)
    for mode, privacy in clusters.MODES.items():
        made = clusters.experiment(mode, 3, tmp_path, tmp_path / "accounts")
        config = made.config()
        assert (made.seed, made.rounds, config["method"]["name"]) == (3, example["rounds"], "single")
        for part in ("model", "trainer"):
            assert {key: config[part][key] for key in example[part]} == example[part]
        assert (made.evaluate.every, made.evaluate.patience) == (example["rounds"], 0)
        assert {key: config["privacy"][key] for key in privacy} == privacy


def agreeing(kept: Any, mode: str, nmi: float) -> Any:
    """The same file, where a mode's clusters agree by so much, without any spread."""
    for site in kept["sites"].values():
        for one in site["agreements"]:
            if one["second"] == mode and one["first"] == "off":
                one |= {"nmi": nmi, "nmi_std": 0.0}
    return kept


@pytest.mark.parametrize(("nmi", "told"), [(0.99, "in 6 of 6"), (0.0, "in 0 of 6")])
def test_the_conclusion_follows_from_the_table(written: ModuleType, kept: Any, nmi: float, told: str) -> None:
    first = next(iter(written.conclusions(agreeing(agreeing(kept, "u-only", 0.5), "paper", nmi))))
    assert first.startswith(f"`paper` is nearer to `off` than `u-only` is {told} comparisons")
    assert f"farther in {6 if nmi == 0.0 else 0}" in first


def test_all_pairs_of_five_clusterings_are_compared(clusters: ModuleType, kept: Any) -> None:
    assert list(kept["sites"]) == list(clusters.SITES)
    for site in kept["sites"].values():
        assert site["patients"] == 240
        pairs = {
            (one["second"], one["k"]): one["pairs"] for one in site["agreements"] if one["first"] == "off"
        }
        assert pairs == {(mode, k): 10 if mode == "off" else 25 for mode in clusters.MODES for k in (2, 3, 4)}


def test_nothing_is_promised_without_a_proof(kept: Any) -> None:
    told = {mode: {of["guarantee"] for of in costs} for mode, costs in kept["privacy"].items()}
    assert told == {"off": set(), "paper": {"none"}, "u-only": set(), "strict": {"formal"}}
    assert all(of["epsilon"] <= 8 for of in kept["privacy"]["strict"])


def test_the_command_makes_the_page(
    clusters: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two short runs of two modes; a second call trains nothing again, and finds the same."""
    pytest.importorskip("sklearn")
    preset = tmp_path / "short.toml"
    preset.write_text(clusters.PRESET.read_text().replace("rounds   = 60", "rounds = 1"))
    modes = {mode: clusters.MODES[mode] for mode in ("off", "u-only")}
    told: list[Any] = []
    monkeypatch.setattr(clusters.torch, "set_num_threads", lambda _: None)  # other tests have their own
    monkeypatch.setattr(clusters, "page", lambda kept: told.append(kept) or "told")
    for name, value in {"PRESET": preset, "SEEDS": 2, "MODES": modes, "DOCS": tmp_path}.items():
        monkeypatch.setattr(clusters, name, value)
    for _ in range(2):
        clusters.main(["--out", str(tmp_path / "runs")])
        monkeypatch.setattr(clusters, "run", None)
    assert told[0] == told[1] == json.loads((tmp_path / "clusters.json").read_text())
    assert (tmp_path / "clusters.md").read_text() == "told"
    north = told[0]["sites"]["north"]
    assert (north["patients"], north["confidential"] > north["train"] / 2) == (240, True)
    pairs = {(one["first"], one["second"]) for one in north["agreements"]}
    assert pairs == {("off", "off"), ("u-only", "u-only"), ("off", "u-only")}
