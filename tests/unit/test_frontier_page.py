"""docs/frontier.md: its conclusions follow from its rows, and ε is never printed below what was spent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedkge.config import read_toml, variant
from fedkge.errors import DataError, DataWarning
from fedkge.runs.experiment import Experiment
from fedkge.training.cadence import Cadence

ROOT = Path(__file__).parents[2]
MISSING = ("dp_accounting", "safetensors", "safetensors.torch", "typer")  # of a machine that only trains


@pytest.fixture(scope="module")
def frontier(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("frontier")


@pytest.fixture(scope="module")
def written(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("frontier_page")


def row(preset: str, hits: Sequence[float], epsilon: float | None = None, **given: Any) -> dict[str, Any]:
    noisy = epsilon is not None
    return {
        "preset": preset,
        "options": {},
        "of_preset": False,
        "epsilon": epsilon,
        "delta": 1e-6 if noisy else None,
        "guarantee": ("none" if preset == "paper" else "formal") if noisy else None,
        "accountant": "pld" if noisy else None,
        "mechanism": "Gaussian noise 2.978 on every row" if noisy else None,
        "seeds": list(range(len(hits))),
        "devices": ["cpu"],
        **{f"{split}_{metric}": list(hits) for split in ("valid", "test") for metric in ("hits@10", "mrr")},
    } | given


WITHOUT = row("u-only", (0.414, 0.415, 0.416))  # 41.5 ± 0.1
OPENLY = row("off", (0.464, 0.465, 0.466))
STRICT = row("strict", (0.424, 0.425, 0.426), 9.9912)


def said(written: ModuleType, *rows: dict[str, Any]) -> str:
    return "\n".join(written.conclusions(rows))


# Conclusions


def test_above_by_how_much_and_how_many_spreads(written: ModuleType) -> None:
    text = said(written, WITHOUT, STRICT, OPENLY)
    assert "reaches 41.50 ± 0.10 %: 1.22 points above" in text
    assert "(`off`) is 5.00 points above `u-only` (25.0 times the spread between seeds): that is" in text
    assert (
        "`strict` at ε = 10.0 is 1.00 points above `u-only` (5.0 times the spread between seeds) and 4.00 "
        "points below `off` (20.0 times the spread between seeds): 20 % of what no protection gains."
    ) in text
    assert "shown above `u-only` at ε = 10.0, and below it at no ε here." in text


def test_below(written: ModuleType) -> None:
    text = said(written, WITHOUT, row("strict", (0.394, 0.395, 0.396), 1.0), OPENLY)
    assert "`strict` at ε = 1 is 2.00 points below `u-only` (10.0 times" in text
    assert "what no protection gains" not in text
    assert "shown above `u-only` at no ε here, and below it at ε = 1." in text


def test_within_noise(written: ModuleType) -> None:
    text = said(written, WITHOUT, row("strict", (0.414, 0.416, 0.418), 2.0), OPENLY)
    assert "is 0.10 points above `u-only` (not shown: the spread between seeds is 0.30)" in text
    assert "what no protection gains" not in text
    assert (
        "at no ε here, and below it at no ε here; neither is shown at ε = 2, where `u-only` costs no privacy."
    ) in text


def test_one_seed_shows_nothing(written: ModuleType) -> None:
    text = said(written, WITHOUT, row("strict", (0.5,), 2.0), row("off", (0.6,)))
    assert "is 8.50 points above `u-only` (not shown: one seed)" in text
    assert "that is what there is to gain" not in text
    assert "neither is shown at ε = 2" in text


def test_what_a_smaller_epsilon_takes(written: ModuleType) -> None:
    small, near = row("strict", (0.404, 0.405, 0.406), 2.0), row("strict", (0.423, 0.424, 0.425), 8.0)
    text = said(written, small, STRICT | {"epsilon": 10.0}, near)
    assert "From ε = 10 down to 8, `strict` gives up 0.10 points (not shown: the spread" in text
    assert "From ε = 8 down to 2, `strict` gives up 1.90 points, 0.32 for each 1 of ε (9.5 times" in text
    better = said(written, row("strict", (0.454, 0.455, 0.456), 2.0), STRICT | {"epsilon": 4.0})
    assert "From ε = 4 down to 2, `strict` gains 3.00 points, 1.50 for each 1 of ε" in better


def test_what_an_epsilon_allows_is_rounded_up(written: ModuleType) -> None:
    """min(e^ε · 5 % + δ, 1 - e^-ε · (95 % - δ)): 36.9453 % at 2, and 99.9957 % at 10."""
    text = said(written, STRICT | {"epsilon": 10.0}, STRICT | {"epsilon": 2.0})
    assert "at most 100.00 % at ε = 10, 36.95 % at ε = 2" in text


def test_what_was_not_run_is_said(written: ModuleType) -> None:
    assert "`u-only` was not run" in said(written, STRICT)
    assert "`off` was not run" in said(written, WITHOUT, STRICT)


def test_modes_that_promise_something_else(written: ModuleType) -> None:
    rows = WITHOUT, OPENLY, row("paper", (0.314, 0.315, 0.316), 7.9612), row("fulldp", (0.3,), 9.981)
    text = said(written, *rows)
    assert (
        "`paper`, where ε is no guarantee: at ε = 7.97 it is 10.00 points below `u-only` (50.0 times" in text
    )
    assert (
        "`fulldp`, which protects unrestricted triples too: at ε = 9.99 it is 16.50 points below `off`"
        in text
    )


def test_options_that_follow_epsilon_are_told(written: ModuleType) -> None:
    other = STRICT | {"options": {"privacy.epsilon": 4.0, "privacy.lr": 0.01}, "epsilon": 4.0}
    assert "not searched: `strict` at ε = 4: privacy.lr = 0.01." in said(written, WITHOUT, other)


# The page


@pytest.mark.parametrize(
    ("epsilon", "printed"),
    [(9.9938, "10.0"), (9.981, "9.99"), (3.4701, "3.48"), (0.27411, "0.275"), (1.9981, "2.00")],
)
def test_epsilon_is_rounded_up(written: ModuleType, epsilon: float, printed: str) -> None:
    text = written.page([STRICT | {"epsilon": epsilon}], [])
    assert f"| `strict` | {printed} | 1e-06 | formal |" in text
    assert float(printed) >= epsilon


def test_settings_that_were_tried(written: ModuleType) -> None:
    tried = [
        row("u-only", (0.40,), options={"trainer.lr": 0.001}, of_preset=True),
        row("u-only", (0.41,), options={"trainer.lr": 0.002}),
        row("strict", (0.43,), 10.0, options={"privacy.lr": 0.015, "privacy.clip": 0.3}, of_preset=True),
        row("strict", (0.39,), 10.0, options={"privacy.lr": 0.03, "privacy.clip": 1.0}),
    ]
    text = " ".join(written.chosen(tried).split())
    assert "| `strict` | privacy.lr = 0.03, privacy.clip = 1 | 39.00 | 39.00 |" in text
    assert (
        "2 settings, 40.00 to 41.00; the best has trainer.lr = 0.002, and the preset is 1.00 points below"
        in text
    )
    assert "the best has privacy.lr = 0.015, privacy.clip = 0.3, and the preset has these." in text
    assert "is not shown" in written.chosen([])


def test_the_page_is_what_its_results_make(written: ModuleType) -> None:
    results = json.loads((ROOT / "docs" / "frontier.json").read_text())
    assert (ROOT / "docs" / "frontier.md").read_text() == written.page(**results)


# Runs


def test_the_noise_is_the_least_that_keeps_within_epsilon(frontier: ModuleType) -> None:
    """Of FB15k-237's 272,115 training triples half are confidential, or all."""
    pytest.importorskip("dp_accounting")
    for (preset, epsilon), noise in frontier.NOISE.items():
        one = Experiment.parse(variant(read_toml(ROOT / "examples" / frontier.PRESET), preset))
        cadence = Cadence.of(one.trainer, one.privacy, {"strict": 136_058, "fulldp": 272_115}[preset])
        steps = one.rounds * one.trainer.epochs * cadence.steps
        released = [cadence.release(one.privacy, noise, steps)]
        assert 0.99 * epsilon < one.privacy.counted_by.epsilon(released, 1e-6) <= epsilon


def test_presets_are_among_the_settings_that_are_tried(frontier: ModuleType) -> None:
    chosen = [point.preset for point in frontier.TUNING if point.of_preset(ROOT / "examples")]
    assert chosen == ["u-only", "strict"]


@pytest.fixture
def presets(tmp_path: Path, frontier: ModuleType) -> Path:
    """The presets, three epochs of a graph of forty entities."""
    random = np.random.default_rng(0)
    triples = random.permutation(np.unique(random.integers(0, [40, 3, 40], (400, 3)), axis=0))
    graph, folder = tmp_path / "graph" / "all", tmp_path / "presets"
    graph.mkdir(parents=True)
    folder.mkdir()
    for split, part in zip(("train", "valid", "test"), np.split(triples[:360], [300, 330]), strict=True):
        (graph / f"{split}.tsv").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in part))
    smaller = {
        '{ name = "fb15k-237" }': f'{{ path = "{graph.parent}" }}',
        "rounds = 60": "rounds = 3",
        "every = 60": "every = 3",
        "batch_size = 521": "batch_size = 64",
        "batch_size = 65536": "batch_size = 64",
        "dim = 100": "dim = 8",
    }
    for preset in ("u-only", "strict"):
        text = (ROOT / "examples" / frontier.PRESET.format(preset)).read_text()
        for old, new in smaller.items():
            text = text.replace(old, new)
        (folder / frontier.PRESET.format(preset)).write_text(text)
    return folder


def trained(frontier: ModuleType, presets: Path, out: Path, point: Any, seed: int = 0) -> Path:
    (job,) = frontier.jobs([point], out, presets, [seed])
    good, line = frontier.train(job, "cpu")
    assert good, line
    assert line.startswith(f"{point.name} seed{seed}: ")
    return Path(job.folder)


def test_a_machine_that_only_trains_needs_no_accountant(
    frontier: ModuleType, presets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ε is counted from the ledger where the page is written, and kept."""
    pytest.importorskip("dp_accounting")
    out, point = tmp_path / "out", frontier.Point("strict")
    with monkeypatch.context() as bare:
        for name in MISSING:
            bare.setitem(sys.modules, name, None)
        with pytest.warns(DataWarning, match="dp-accounting"):
            folder = trained(frontier, presets, out, point)
    assert json.loads((folder / "summary.json").read_text())["privacy"] == []
    assert list(frontier.jobs([point], out, presets, [0])) == []
    (found,) = frontier.measured([point], out, presets)
    assert (found["guarantee"], found["accountant"], found["seeds"]) == ("formal", "pld", [0])
    assert 1.0 < found["epsilon"] < 3.0
    (kept,) = json.loads((folder / "summary.json").read_text())["privacy"]
    assert kept["epsilon"] == found["epsilon"]


def test_settings_are_tried_and_the_page_written(
    frontier: ModuleType, presets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    docs.mkdir()
    with pytest.raises(DataError, match="no run of this program"):
        frontier.write(out, presets, docs)
    for point in (frontier.TUNING[2], frontier.TUNING[-1]):
        trained(frontier, presets, out / frontier.TUNE, point)
    trained(frontier, presets, out, frontier.Point("u-only"))
    frontier.main(["--out", str(out), "--presets", str(presets), "--docs", str(docs)])
    assert "`u-only`: 1 settings" in (docs / "frontier.md").read_text()
    results = json.loads((docs / "frontier.json").read_text())
    assert [found["preset"] for found in results["points"]] == ["u-only"]
    assert [found["of_preset"] for found in results["tuning"]] == [True, False]
    assert capsys.readouterr().out.startswith("# What privacy costs")


def test_a_run_with_other_options_is_refused(frontier: ModuleType, presets: Path, tmp_path: Path) -> None:
    out, point = tmp_path / "out", frontier.Point("u-only")
    trained(frontier, presets, out, point)
    with pytest.raises(DataError, match="its options are not those of"):
        frontier.measured([point], out, ROOT / "examples")


def test_a_folder_without_an_end_is_in_the_way(frontier: ModuleType, presets: Path, tmp_path: Path) -> None:
    (tmp_path / "u-only" / "seed0").mkdir(parents=True)
    with pytest.raises(DataError, match="delete or move it"):
        list(frontier.jobs([frontier.Point("u-only")], tmp_path, presets, [0]))


def test_a_killed_run_is_made_anew(frontier: ModuleType, presets: Path, tmp_path: Path) -> None:
    left = tmp_path / "u-only" / ".seed0.part"
    left.mkdir(parents=True)
    (left / "config.toml").write_text("torn")
    folder = trained(frontier, presets, tmp_path, frontier.Point("u-only"))
    assert (folder / "summary.json").exists()
    assert not left.exists()
