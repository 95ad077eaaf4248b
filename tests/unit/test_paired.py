"""Better or worse off beyond chance: the bootstrap against scipy and a loop, and what reports make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import DataError
from fedkge.randomness import generator
from fedkge.reports.compared import bootstrap
from fedkge.reports.compared.baseline import (
    BETTER,
    WORSE,
    Difference,
    against_alone,
    differences,
    paired_rows,
    unknown,
)
from fedkge.reports.compared.bootstrap import paired, reciprocal_ranks
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.tables import joining_rows
from fedkge.reports.drawing import plots
from fedkge.reports.folders.load import load_runs
from fedkge.reports.pages.findings import joining
from fedkge.reports.pages.results import chances
from run_folders import SITES, write_ranks, write_run, write_seeds

RECIPROCALS = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=30)


def ranks(seed: int, questions: int = 200, most: int = 300) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, most, questions) / 1


def test_the_interval_is_the_one_of_a_slow_loop() -> None:
    new, old = 1 / ranks(0, 40), 1 / ranks(1, 40)
    drawn = generator(3, "paired bootstrap").integers(0, 40, (50, 40))
    means = sorted(sum(new[i] - old[i] for i in row) / 40 for row in drawn.tolist())

    def quantile(share: float) -> float:  # linear between neighbours
        at = share * (len(means) - 1)
        below = int(at)
        return means[below] + (at - below) * (means[min(below + 1, len(means) - 1)] - means[below])

    found = paired(new, old, seed=3, resamples=50)
    assert found == pytest.approx((np.mean(new - old), quantile(0.025), quantile(0.975)))


@pytest.mark.parametrize("at_a_time", [1, 333, 1 << 20])
def test_it_does_not_matter_how_many_are_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    new, old = 1 / ranks(0), 1 / ranks(1)
    whole = paired(new, old)
    monkeypatch.setattr(bootstrap, "AT_A_TIME", at_a_time)
    assert paired(new, old) == whole


def test_it_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    new, old = 1 / ranks(0, 300, 20), 1 / ranks(1, 300, 25)
    found = paired(new, old, resamples=20_000)
    theirs = stats.bootstrap((new - old,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    width = found.high - found.low
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)


@given(st.data(), RECIPROCALS)
def test_the_other_way_round_it_is_the_mirror_image(data: st.DataObject, new: Sequence[float]) -> None:
    old = data.draw(st.lists(st.floats(1e-6, 1.0), min_size=len(new), max_size=len(new)))
    one, other = np.array(new), np.array(old)
    there, back = paired(one, other, resamples=60), paired(other, one, resamples=60)
    assert there.mean == -back.mean
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-12)
    assert {there.verdict, back.verdict} in ({""}, {BETTER, WORSE})


@given(RECIPROCALS)
def test_a_run_beside_itself_differs_by_nothing(values: Sequence[float]) -> None:
    found = paired(np.array(values), np.array(values), resamples=20)
    assert found == (0, 0, 0)
    assert found.verdict == ""


def test_pairs_tell_more_than_two_means() -> None:
    """Questions of very different difficulty, each a little better: as pairs beyond doubt."""
    old = 1 / ranks(0, 400, 500)
    assert paired(old * 1.05, old).verdict == BETTER
    assert paired(old, np.random.default_rng(0).permutation(old * 1.05)).verdict == ""


def test_verdicts() -> None:
    assert Difference(0.1, 0.01, 0.2).verdict == BETTER
    assert Difference(-0.1, -0.2, -0.01).verdict == WORSE
    assert Difference(0.1, -0.01, 0.2).verdict == Difference(0.0, 0.0, 0.0).verdict == ""


@pytest.mark.parametrize(("new", "old"), [(3, 4), (0, 0)])
def test_what_is_no_pairs_is_an_error(new: int, old: int) -> None:
    with pytest.raises(DataError, match="expected pairs of questions"):
        paired(np.ones(new), np.ones(old))


# Runs


@pytest.fixture
def both(tmp_path: Path) -> list[Path]:
    """Joined, `airline` is better off, `gazetteer` worse, the others right as often elsewhere."""
    single = write_run(tmp_path / "single")
    fede = write_run(tmp_path / "fede", "fede")
    old = {site: ranks(i) for i, site in enumerate(SITES)}
    new = {site: values[::-1] for site, values in old.items()}
    new |= {"airline": np.ceil(old["airline"] / 3), "gazetteer": old["gazetteer"] * 2}
    write_ranks(single, {site: values.tolist() for site, values in old.items()})
    write_ranks(fede, {site: values.tolist() for site, values in new.items()})
    return [single, fede]


def test_every_site_is_compared_with_itself_alone(both: list[Path]) -> None:
    groups = experiments(load_runs(both))
    found = against_alone(groups)
    assert found["single"] == {}
    assert [found["fede"][site].verdict for site in SITES[:2]] == [BETTER, WORSE]
    for row in paired_rows(found):
        new, old = (
            reciprocal_ranks(path / "sites" / row["site"] / "ranks.safetensors") for path in both[::-1]
        )
        assert row["difference"] == pytest.approx(np.mean(new) - np.mean(old))
        assert row["low"] <= row["difference"] <= row["high"]
    (row,) = joining_rows(groups, found)
    assert (row["better_off"], row["worse_off"]) == (["airline"], ["gazetteer"])
    assert joining_rows(groups)[0]["worse_off"] is None
    assert unknown(groups) == ""


def test_the_page_says_who_is_worse_off(both: list[Path]) -> None:
    groups = experiments(load_runs(both))
    beyond = against_alone(groups)
    assert "Beyond chance: 1 better off than alone, 1 worse off (gazetteer)." in joining(groups, beyond)
    html = re.sub("<.*?>", "", chances(beyond))
    assert html.count(WORSE) == 1 + 2  # two more in the caption
    figure = plots.gain_figure(groups, beyond)
    assert figure is not None
    whiskers = figure.data[0]["error_y"]
    first = beyond["fede"]["airline"]
    assert whiskers["array"][0] == first.high - first.mean
    assert whiskers["arrayminus"][0] == first.mean - first.low


def test_over_seeds_every_question_counts_with_its_mean(tmp_path: Path) -> None:
    folders = [write_seeds(tmp_path / method, method, (0, 1)) for method in ("single", "fede")]
    values = [[[1, 2, 4, 4], [1, 4, 4, 4]], [[2, 2, 2, 2], [1, 1, 4, 8]]]
    for folder, of in zip(folders, values, strict=True):
        for seed, own in enumerate(of):
            write_ranks(folder / f"seed-{seed}", {"airline": own})
    single, fede = experiments(load_runs(folders))
    new = np.mean([1 / np.array(own) for own in values[1]], axis=0)
    old = np.mean([1 / np.array(own) for own in values[0]], axis=0)
    assert differences(fede, single) == {"airline": paired(new, old)}


def test_only_the_questions_that_a_run_is_judged_by_count(tmp_path: Path) -> None:
    tails = ["evaluate.sides=tail"]
    single = write_ranks(write_run(tmp_path / "single", options=tails), {"airline": [1, 1, 4, 4]})
    fede = write_ranks(write_run(tmp_path / "fede", "fede", options=tails), {"airline": [9, 9, 2, 2]})
    base, group = experiments(load_runs([single, fede]))
    assert differences(group, base) == {"airline": (0.25, 0.25, 0.25)}


def test_what_is_not_known_is_not_guessed(both: list[Path]) -> None:
    (both[0] / "sites" / "airline" / "ranks.safetensors").unlink()
    summary = json.loads((both[1] / "summary.json").read_text())
    summary["sites"]["gazetteer"]["digest"] = "another"
    (both[1] / "summary.json").write_text(json.dumps(summary))
    groups = experiments(load_runs(both))
    assert set(against_alone(groups)["fede"]) == set(SITES[2:])
    assert "no ranks of test questions in single." in unknown(groups)
    assert "`fedkge evaluate RUN --keep-ranks`" in chances({}, unknown(groups))


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_files_that_hold_no_ranks_are_errors(both: list[Path], content: bytes | None) -> None:
    path = both[1] / "sites" / "airline" / "ranks.safetensors"
    if content is None:
        write_ranks(both[1], {"airline": [0.0, 1.0]})
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"ranks\.safetensors: .*expected ranks, as a run writes them"):
        against_alone(experiments(load_runs(both)))
