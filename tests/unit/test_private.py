"""What the accountant assumes of private training is what it does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis
from fedkge.kernels import Debt
from fedkge.kernels.reference import cut
from fedkge.models import MODELS, Side
from fedkge.privacy import Budget, Privacy, Spending, read_ledger
from fedkge.privacy.accountants import Rdp
from fedkge.training import Corpus, Trainer, Training
from fedkge.training import private as private_module
from fedkge.training.cadence import Cadence, interleaved
from fedkge.training.clipping import differentiated
from fedkge.training.confidential import Sheet, poisson_batches, shuffled_batches, unmarked
from fedkge.training.noise import LazyNoise
from fedkge.training.private import PrivateTraining
from fedkge.training.secret import Secret
from private_training import PAPER, STRICT, canary_run, half_of, private, strict_bound, touched_bound
from small_graphs import first_tables, graph_of, random_graph, watch

TRAINER = Trainer(batch_size=16, negatives=4, lr=0.1, loss="logistic")
GRAPH = random_graph(0, 40, 3, 200)
MARKS = half_of(GRAPH)


# Steps


def test_without_noise_or_clipping_it_is_gradient_descent() -> None:
    """All triples confidential, every one in every batch: replayed by autograd on the same negatives."""
    trainer = Trainer(batch_size=1000, negatives=4, lr=0.5, loss="logistic", optimizer="sgd")
    unclipped = Privacy("strict", noise=1.0, delta=1e-5, clip=1e6)
    everything = np.ones(len(GRAPH.train), bool)
    training = private(trainer, GRAPH, everything, unclipped, noise=0.0)
    batches, make = [], training.closed.batch

    def record(*arguments: object) -> object:
        batches.append(make(*arguments))
        return batches[-1]

    object.__setattr__(training, "closed", _Recorded(training.closed, record))
    training.run(0, 3)
    assert len(batches) == 6
    assert all(len(batch.anchor) == len(GRAPH.train) for batch in batches)
    tables = first_tables(MODELS["transe"](dim=8), GRAPH)
    for batch in batches:
        leaves = [tables.table(axis).requires_grad_() for axis in Axis]
        scores = tables.scores(batch.anchor, batch.relation, batch.index, batch.side)
        gradients = torch.autograd.grad(trainer.losses(scores).mean(), leaves)
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf -= trainer.lr * gradient
    for axis in Axis:
        assert torch.allclose(training.tables.table(axis), tables.table(axis), atol=2e-5)


class _Recorded:
    def __init__(self, closed: object, batch: object) -> None:
        self._closed, self.batch = closed, batch

    def __getattr__(self, name: str) -> object:
        return getattr(self._closed, name)


@pytest.mark.parametrize("chunk", [1, 5])
@pytest.mark.parametrize("name", ["transe", "rotate", "distmult", "rescal", "transm", "transh"])
def test_one_triple_moves_the_sum_by_at_most_the_clipping_norm(name: str, chunk: int) -> None:
    trainer = Trainer(batch_size=16, negatives=6, loss="self-adversarial", chunk=chunk)
    clip = 0.3
    training = private(trainer, GRAPH, MARKS, model=MODELS[name](dim=6))
    for table in (training.tables.entities, training.tables.relations):
        table.mul_(3)  # so that norms are large
    sheet = training.sheet

    def summed(places: list[int], side: Side) -> torch.Tensor:
        sheet.write(Secret(b"s" * 32), 99, np.array(places), len(places))
        placed, key = sheet.placed(len(places)), sheet.negatives
        batch = training.closed.batch(placed, side, trainer.negatives, key, sheet.starts)
        for noise in training.noises.values():
            noise.begin()
        triples = differentiated(training.tables, training.objective, batch)
        norms = triples.norms()
        assert (norms > clip).any()
        triples.release_(cut(norms, clip))
        found = [noise.gradient.dense.flatten().clone() for noise in training.noises.values()]
        for noise in training.noises.values():
            noise.gradient.dense.zero_()
            noise.end()
        return torch.cat(found)

    for side in Side:
        for left_out in range(8):
            places = list(range(3, 19))
            rest = [place for place in places if place != 3 + 2 * left_out]
            gap = (summed(places, side) - summed(rest, side)).norm()
            assert 0 < gap <= clip * (1 + 1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
def test_every_row_moves_in_every_step_even_of_an_empty_batch(optimizer: str) -> None:
    trainer = Trainer(batch_size=1, negatives=1, optimizer=optimizer, sides="tail")
    graph = graph_of(GRAPH.train, 300, 9)  # most rows are in no triple
    training = private(trainer, graph, np.ones(len(graph.train), bool))
    before = [training.tables.table(axis).clone() for axis in Axis]
    for _ in range(3):
        training._take_closed(0, np.empty(0, np.int64), Side.TAIL, False)
    for lazy in training.lazy.values():
        lazy.settle_all()
    for axis, old in zip(Axis, before, strict=True):
        assert ((training.tables.table(axis) - old) != 0).all()


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_confidential_steps_that_do_not_move_leave_plain_training(optimizer: str) -> None:
    """Their optimizer is their own: with a rate of all but 0, nothing of them is left, moments included."""
    trainer = Trainer(batch_size=20, negatives=3, optimizer=optimizer, lr=0.05)
    still = Privacy("strict", noise=1.0, delta=1e-5, lr=1e-38)
    training = private(trainer, GRAPH, MARKS, still)
    open_graph = unmarked(replace(GRAPH, confidential=MARKS), still)
    tables = first_tables(MODELS["transe"](dim=8), GRAPH)
    plain = Training(trainer, tables, Corpus.of({"site": open_graph}, 0, tables.device))
    training.run(0, 2)
    plain.run(0, 2)
    for axis in Axis:
        torch.testing.assert_close(training.tables.table(axis), tables.table(axis), rtol=1e-6, atol=1e-7)
    names = set(training.state())
    assert {"steps", "confidential.steps"} <= names
    if optimizer == "adam":
        assert {"entity.m", "entity.confidential.m"} <= names


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_noise_has_the_size_that_is_accounted(optimizer: str) -> None:
    """Steps of empty batches are noise alone: sigma C / expected batch, per step and number."""
    trainer = Trainer(batch_size=20, negatives=1, optimizer=optimizer, lr=0.5)
    graph = graph_of(GRAPH.train, 3000, 3)
    privacy = Privacy("strict", noise=1.7, delta=1e-5, clip=0.6)
    training = private(trainer, graph, MARKS, privacy, noise=1.7, model=MODELS["transe"](dim=32))
    before = training.tables.entities.clone()
    steps = 4 if optimizer == "sgd" else 1
    for number in range(steps):
        training._take_closed(number, np.empty(0, np.int64), Side.TAIL, False)
    moved = training.tables.entities - before
    if optimizer == "adagrad":  # its first step is lr times the sign; the squares tell the size
        moved = training.stepper.every["confidential."].by_axis[Axis.ENTITY].state["squares"].sqrt() * 0.5
    else:
        assert not moved.any(), "owed, not yet given"
        training.lazy["entity"].settle_all()
        moved = training.tables.entities - before
    expected = 0.5 * 1.7 * 0.6 / 20 * steps**0.5
    assert float(moved.square().mean().sqrt()) == pytest.approx(expected, rel=0.02)


def test_owed_noise_is_given_once_and_by_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(batch_size=8, negatives=3, optimizer="sgd")
    training = private(trainer, GRAPH, MARKS)
    drawn: Counter[tuple[int, int]] = Counter()
    given = torch.zeros(GRAPH.n_entities)
    settle, settle_all = LazyNoise.settle, LazyNoise.settle_all

    def record(self: LazyNoise, rows: torch.Tensor) -> None:
        if self is training.lazy["entity"]:
            note(self.debt, rows.unique())
        settle(self, rows)

    def record_all(self: LazyNoise) -> None:
        if self is training.lazy["entity"]:
            note(self.debt, torch.arange(GRAPH.n_entities))
        settle_all(self)

    def note(debt: Debt, rows: torch.Tensor) -> None:
        owed = rows[debt.taken > debt.given[rows]]
        drawn.update((int(debt.key), row) for row in owed.tolist())
        given[rows] += debt.taken - debt.given[rows]

    monkeypatch.setattr(LazyNoise, "settle", record)
    monkeypatch.setattr(LazyNoise, "settle_all", record_all)
    training.run(0, 2)
    assert max(drawn.values()) == 1
    assert set(given.tolist()) == {float(training.protection.spending.given)}


def test_what_a_model_reads_off_triples_gets_no_noise() -> None:
    training = private(TRAINER, GRAPH, MARKS, model=MODELS["transm"](dim=4))
    before = training.tables.relations[:, 4].clone()
    training.run(0, 2)
    assert torch.equal(training.tables.relations[:, 4], before)
    assert training.protection.observed(torch.from_numpy(GRAPH.train)).shape[0] == (~MARKS).sum()


def test_noise_that_adam_adds_where_it_steps_is_the_noise_of_summed_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU; a site's whole state says the same."""
    runs = []
    for noise, fused in ((1.0, False), (1.0, True), (0.0, True)):
        monkeypatch.setattr(private_module, "adds_noise", lambda *_, fused=fused: fused)
        training = private(TRAINER, GRAPH, MARKS, noise=noise, model=MODELS["rotate"](dim=7))
        assert all((n.stepping is not None) == fused for n in training.noises.values())
        training.run(0, 2)
        runs.append({"rows": training.tables.entities, **training.state()})
    summed, stepped, silent = runs
    assert all(torch.allclose(stepped[name], summed[name], rtol=1e-3, atol=1e-4) for name in summed)
    assert not torch.allclose(stepped["rows"], silent["rows"], rtol=1e-3, atol=1e-4)


class _Padded:
    """Steps as a GPU has them, taken one by one."""

    def __init__(self) -> None:
        self.sizes: Counter[int] = Counter()

    def __call__(
        self, step: Callable[[tuple[int, int], Side], None], size: tuple[int, int], side: Side
    ) -> None:
        self.sizes[size[0]] += 1
        step(size, side)


@pytest.mark.parametrize("chunk", [1, 5])
def test_padding_counts_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = replace(TRAINER, chunk=chunk)
    plain = private(trainer, GRAPH, MARKS)
    expected = plain.run(0, 3)
    made: list[_Padded] = []

    def steps(self: PrivateTraining) -> dict[bool, _Padded]:
        made.append(_Padded())
        return dict.fromkeys((False, True), made[-1])

    monkeypatch.setattr(PrivateTraining, "_steps", steps)
    padded = private(trainer, GRAPH, MARKS)
    padded._captured = {}
    assert torch.allclose(padded.run(0, 3), expected, rtol=1e-5)
    for axis in Axis:
        assert torch.allclose(padded.tables.table(axis), plain.tables.table(axis), atol=1e-5)
    assert set(made[-1].sizes) == {25}  # 16, two standard deviations, and one
    padded._take_closed(98, np.arange(26), Side.TAIL, False)
    assert set(made[-1].sizes) == {25, 41}
    padded._take_closed(99, np.arange(60), Side.TAIL, False)
    assert set(made[-1].sizes) == {60}, "more than there was place for: captured anew"


def test_a_sheet_is_what_the_secret_says() -> None:
    secret, sheet = Secret(b"s" * 32), Sheet(["entity", "relation"], 0, 5, torch.device("cpu"))
    sheet.write(secret, 7, np.array([4, 2]), 5)
    assert int(sheet.there) == 2
    assert sheet.placed(5).tolist() == [4, 2, 0, 0, 0]
    names = {("negatives",): sheet.negatives, ("noise", "relation"): sheet.noise("relation")}
    for purpose, found in names.items():
        assert found.shape == (1,)
        assert int(found) % 2**64 == secret.key(7, *purpose)


def test_a_sheet_deals_triples_out_to_chunks_by_their_places() -> None:
    sheet = Sheet(["entity"], 3, 9, torch.device("cpu"))
    sheet.write(Secret(b"s" * 32), 7, np.array([8, 2, 0, 3, 11]), 9)
    assert sheet.placed(9).tolist() == [0, 3, 8, 2, 11, 0, 0, 0, 0]
    assert sheet.starts.tolist() == [0, 2, 2, 9], "padding is in the last"
    assert int(sheet.there) == 5


# Samples and negatives


def test_samples_are_poisson() -> None:
    count, rate, steps = 60, 0.05, 4000
    cadence, trainer = Cadence(rate, steps, 3.0), Trainer(sides="tail")
    samples = [s for s, _ in poisson_batches(Secret(b"x" * 32), cadence, count, range(steps), trainer, 0)]
    sizes = np.array([len(sample) for sample in samples])
    assert all(len(set(sample.tolist())) == len(sample) for sample in samples)
    assert abs(sizes.mean() - count * rate) < 5 * (count * rate * (1 - rate) / steps) ** 0.5
    assert sizes.var() == pytest.approx(count * rate * (1 - rate), rel=0.15)
    assert (sizes == 0).mean() == pytest.approx((1 - rate) ** count, rel=0.25)
    often = np.bincount(np.concatenate(samples), minlength=count) / steps
    assert np.abs(often - rate).max() < 5 * (rate * (1 - rate) / steps) ** 0.5


def test_shuffled_batches_visit_every_triple_once_per_side() -> None:
    trainer = Trainer(batch_size=7)
    cadence = Cadence.of(trainer, PAPER, 30)
    assert (cadence.steps, cadence.rate, cadence.expected) == (8, 7 / 30, 7.0)
    found = list(shuffled_batches(Secret(b"x" * 32), cadence, 30, range(10, 18), trainer, 0))
    assert [side for _, side in found] == [Side.HEAD, Side.TAIL] * 4
    for turn in range(2):
        seen = np.concatenate([chosen for chosen, _ in found[turn::2]])
        assert len(seen) == len(set(seen.tolist())) == 28


def test_negatives_of_a_confidential_triple_do_not_depend_on_others() -> None:
    training = private(TRAINER, GRAPH, MARKS)
    whole, some = (
        training.closed.batch(torch.tensor(places), Side.TAIL, 4, training.sheet.negatives)
        for places in ([0, 1, 2, 3, 4], [4, 2])
    )
    assert torch.equal(some.index, whole.index[[4, 2]])
    training.sheet.negatives.fill_(1)
    other = training.closed.batch(torch.tensor([4, 2]), Side.TAIL, 4, training.sheet.negatives)
    assert not torch.equal(other.index, some.index)


def test_shared_negatives_of_a_confidential_triple_do_not_depend_on_others() -> None:
    training = private(replace(TRAINER, chunk=5), GRAPH, MARKS)
    sheet, drawn = training.sheet, []
    assert sheet.chunks == 4
    for places in ([0, 1, 2, 3, 4, 9, 13, 16], [9, 4, 2], [4]):
        sheet.write(Secret(b"s" * 32), 1, np.array(places), len(places))
        placed = sheet.placed(len(places))
        batch = training.closed.batch(placed, Side.TAIL, 4, sheet.negatives, sheet.starts)
        assert not batch.index.left_out.any(), "strict: nothing is known"
        drawn.append(dict(zip(placed.tolist(), batch.index.index().tolist(), strict=True)))
    for some in drawn[1:]:
        assert all(drawn[0][place] == index for place, index in some.items())
    assert drawn[0][0][1:] == drawn[0][4][1:] == drawn[0][16][1:] != drawn[0][1][1:]


@pytest.mark.parametrize("privacy", [STRICT, PAPER])
def test_unrestricted_batches_know_nothing_of_confidential_triples(privacy: Privacy) -> None:
    """Few entities, so that filters matter: by the paper's rules they look at everything."""
    random = np.random.default_rng(0)
    triples = np.unique(random.integers(0, [8, 2, 8], (60, 3)), axis=0)
    rest = random.random(len(triples)) < 0.5
    one = graph_of(triples, 8, 2)
    other = graph_of(np.concatenate((triples[rest], triples[~rest][:-8])), 8, 2)
    seen = []
    for graph, marks in ((one, ~rest), (other, np.arange(len(other.train)) >= rest.sum())):
        training = private(Trainer(batch_size=8, negatives=6), graph, marks, privacy, noise=0.0)
        batches = watch(training)
        training.run(0, 1)
        seen.append(batches)
    same = all(torch.equal(a.index, b.index) for a, b in zip(*seen, strict=True))
    assert same == privacy.strict


@pytest.mark.parametrize("pair", [(0, 5), (5, 0), (1, 1), (3, 7), (20, 7), (6, 6)])
@pytest.mark.parametrize("coin", [True, False])
def test_schedule_keeps_the_ratio_and_ends_with_all(pair: tuple[int, int], coin: bool) -> None:
    unrestricted, confidential = pair
    order = list(interleaved(unrestricted, confidential, lambda: coin))
    assert (order.count(False), order.count(True)) == pair
    for step, done in enumerate(accumulate(order), 1):
        assert abs(done - step * confidential / (unrestricted + confidential)) <= 1


# The paper's rules


def test_by_the_papers_rules_untouched_rows_stay() -> None:
    trainer = Trainer(batch_size=4, negatives=1, optimizer="sgd", sides="tail")
    training = private(trainer, GRAPH, MARKS, PAPER, noise=5.0)
    before = training.tables.entities.clone()
    chosen = np.array([0, 1])
    training._take_closed(0, chosen, Side.TAIL, False)
    batch = training.closed.batch(torch.from_numpy(chosen), Side.TAIL, 1, training.sheet.negatives)
    touched = torch.cat((batch.anchor, batch.index.flatten())).unique().tolist()
    moved = (training.tables.entities != before).any(1).nonzero()[:, 0].tolist()
    assert moved == touched


def test_clipping_at_a_percentile() -> None:
    trainer = Trainer(batch_size=20, negatives=3, sides="tail")
    norms = {}
    for percentile in (20.0, 100.0):
        privacy = Privacy("paper", noise=1.0, delta=1e-5, percentile=percentile)
        training = private(trainer, GRAPH, MARKS, privacy)
        batch = training.closed.batch(torch.arange(20), Side.TAIL, 3, training.sheet.negatives)
        training.sheet.there.fill_(20)
        for noise in training.noises.values():
            noise.begin()
        triples = differentiated(training.tables, training.objective, batch)
        norms[percentile] = float(training._release([triples]))
        assert norms[percentile] == pytest.approx(float(triples.norms().quantile(percentile / 100)))
    assert norms[20.0] < norms[100.0]


# Ledger and secrets


def test_steps_are_in_the_ledger_before_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, taken = tmp_path / "ledger.jsonl", []
    training = private(TRAINER, GRAPH, MARKS, ledger=path)
    take = PrivateTraining._take_closed

    def check(self: PrivateTraining, number: int, *rest: object) -> None:
        assert any(number in entry.numbers for entry in read_ledger(path))
        taken.append(number)
        take(self, number, *rest)

    monkeypatch.setattr(PrivateTraining, "_take_closed", check)
    training.run(0, 3)
    steps = 2 * round(MARKS.sum() / 16)
    assert taken == list(range(3 * steps))
    assert [(entry.epoch, entry.release.count) for entry in read_ledger(path)] == [
        (e, steps) for e in (1, 2, 3)
    ]


def test_training_ends_before_the_budget_does(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    privacy = Privacy("strict", noise=2.0, epsilon=4.0, delta=1e-5, accountant="rdp")
    training = private(TRAINER, GRAPH, MARKS, privacy, noise=2.0, ledger=path)
    training.run(0, 60)
    releases = [entry.release for entry in read_ledger(path)]
    step = training.protection.cadence.release(privacy, 2.0, 1)
    assert Rdp().epsilon(releases, 1e-5) <= 4.0 < Rdp().epsilon([*releases, step], 1e-5)
    before = training.tables.entities.clone()
    assert float(training.run(60, 2)) == 0
    assert torch.equal(training.tables.entities, before), "nothing is trained any more"
    assert Spending(training.protection.spending.ledger, "site", Budget(4.0, 1e-5, Rdp())).left(step, 5) == 0


def test_secrets_are_new_and_nobody_elses_business() -> None:
    first = Secret.new()
    assert first != Secret.new()
    assert len(first.content) == 32
    assert str(first.content) not in repr(first)
    keys = {first.key(n, *purpose) for n in range(50) for purpose in (("noise", "a"), ("noise", "b"), ("x",))}
    assert len(keys) == 150


def test_tables_depend_on_the_secret_and_on_nothing_else_that_is_random() -> None:
    runs = []
    for secret in (b"a" * 32, b"a" * 32, b"b" * 32):
        training = private(TRAINER, GRAPH, MARKS, secret=secret)
        training.run(0, 2)
        runs.append(training.tables.entities)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_options_that_let_triples_out_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.subsampling"):
        private(Trainer(subsampling=True), GRAPH, MARKS)
    with pytest.raises(ConfigError, match=r"trainer\.optimizer: row-adam.*adam, adagrad, sgd"):
        private(Trainer(optimizer="row-adam"), GRAPH, MARKS)
    private(Trainer(optimizer="row-adam"), GRAPH, MARKS, PAPER)


# An attack


def accounted(epsilon: float, epochs: int) -> float:
    """The noise that makes the canary's training cost this ε at 1e-5."""
    privacy = Privacy("strict", epsilon=epsilon, delta=1e-5, accountant="rdp")
    return privacy.multiplier(0.5, 2 * epochs)


def test_a_canary_is_hidden_by_noise_on_every_row_alone() -> None:
    epsilon, epochs = 2.0, 2
    noise = accounted(epsilon, epochs)
    assert strict_bound(STRICT, noise, 30, epochs) < epsilon
    assert touched_bound(PAPER, noise, 50, epochs) > epsilon


def test_the_attack_succeeds_where_there_is_no_noise() -> None:
    row, _ = canary_run(STRICT, 0.0, False, b"n" * 32, 3)
    assert not row.any()
    assert strict_bound(STRICT, 1e-3, 30, 3) > 1.0


@pytest.mark.slow
def test_a_canary_is_hidden_in_a_thousand_trainings() -> None:
    epsilon, epochs, runs = 3.0, 5, 1000
    noise = accounted(epsilon, epochs)
    assert strict_bound(STRICT, noise, runs, epochs) < epsilon
    bound = touched_bound(PAPER, noise, runs, epochs)
    assert math.isfinite(bound)
    assert bound > epsilon
