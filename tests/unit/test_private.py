"""What the accountant assumes of private training is what it does."""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError
from fedkge.evaluation.checks import Diverged
from fedkge.graphs.graph import Axis
from fedkge.kernels.poisson import samples
from fedkge.kernels.reference import cut
from fedkge.models import MODELS, Side
from fedkge.privacy import Budget, Privacy, Spending, read_ledger
from fedkge.privacy.accountants import Rdp
from fedkge.training import Corpus, Trainer, Training
from fedkge.training.cadence import Cadence, interleaved
from fedkge.training.clipping import Grouping, PerTriple, differentiated
from fedkge.training.confidential import Sheet, Step, poisson_batches, shuffled_batches, unmarked
from fedkge.training.noise import NoisySum
from fedkge.training.private import PrivateTraining
from fedkge.training.secret import Secret
from fedkge.training.stepper import Stepper
from fedkge.training.units import Drawn, Units
from private_training import PAPER, STRICT, canary_run, half_of, private, strict_bound, take, touched_bound
from small_graphs import first_tables, graph_of, random_graph, watch

TRAINER = Trainer(batch_size=16, negatives=4, lr=0.1, loss="logistic")
CPU = torch.device("cpu")
SECRET = Secret(b"s" * 32)
GRAPH = random_graph(0, 40, 3, 200)
MARKS = half_of(GRAPH)


def of(*places: int) -> Drawn:
    """A sample of triples."""
    chosen = np.array(places, np.int64)
    return Drawn(chosen, np.arange(len(places) + 1), chosen)


def on(sheet: Sheet, drawn: Drawn, size: int, secret: Secret = SECRET) -> None:
    """Step 7, laid out after another."""
    steps = [Step(number, what, Side.TAIL) for number, what in ((6, of(1)), (7, drawn))]
    sheet.lay_out(secret, steps, (1, size))
    sheet.turn_to(1)


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
        on(sheet, of(*places), len(places))
        placed, key = sheet.placed(len(places)), sheet.negatives
        batch = training.closed.batch(placed, side, trainer.negatives, key, sheet.starts)
        triples = differentiated(training.tables, training.objective, batch)
        norms = triples.squares(Grouping.single(len(places), torch.device("cpu"))).sum(0).sqrt()
        assert (norms > clip).any()
        with ExitStack() as stack:
            for noisy in training.sums.values():
                stack.enter_context(noisy.open())
            triples.release_(cut(norms, clip))
            found = [noisy.gradient.dense.flatten().clone() for noisy in training.sums.values()]
            for noisy in training.sums.values():
                noisy.gradient.dense.zero_()
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
        take(training, 0, of())
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
        take(training, number, of())
    moved = training.tables.entities - before
    if optimizer == "adagrad":  # its first step is lr times the sign; the squares tell the size
        moved = training.stepper.every["confidential."].by_axis[Axis.ENTITY].state["squares"].sqrt() * 0.5
    expected = 0.5 * 1.7 * 0.6 / 20 * steps**0.5
    assert float(moved.square().mean().sqrt()) == pytest.approx(expected, rel=0.02)


def test_clip_sum_noise_step_is_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is written once in a step, from sums that have noise: a wrapped step says when."""
    training, order = private(TRAINER, GRAPH, MARKS), []
    for owner, name in (
        (PrivateTraining, "_clipped"),
        (PerTriple, "release_"),
        (NoisySum, "add_noise"),
        (Stepper, "step"),
    ):
        real = getattr(owner, name)

        def wrapped(*arguments: object, real: object = real, name: str = name) -> object:
            order.append((name, training.tables.entities.clone()))
            return real(*arguments)

        monkeypatch.setattr(owner, name, wrapped)
    before = training.tables.entities.clone()
    take(training, 0, of(0, 3, 5))
    assert [name for name, _ in order] == ["_clipped", "release_", "add_noise", "add_noise", "step"]
    assert all(torch.equal(rows, before) for _, rows in order), "no row moves before the step"
    assert not torch.equal(training.tables.entities, before)


def test_noise_too_coarse_for_its_grid_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"privacy\.noise: 1e\+06.*at most"):
        private(TRAINER, GRAPH, MARKS, noise=1e6).run(0, 1)


def test_what_a_model_reads_off_triples_gets_no_noise() -> None:
    training = private(TRAINER, GRAPH, MARKS, model=MODELS["transm"](dim=4))
    before = training.tables.relations[:, 4].clone()
    training.run(0, 2)
    assert torch.equal(training.tables.relations[:, 4], before)
    assert training.protection.observed(torch.from_numpy(GRAPH.train)).shape[0] == (~MARKS).sum()


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
    assert 25 in made[-1].sizes  # 16, two standard deviations, and one
    take(padded, 98, of(*range(26)))
    assert set(made[-1].sizes) == {25, 41}
    take(padded, 99, of(*range(60)))
    assert set(made[-1].sizes) == {60}, "more than there was place for: captured anew"


def test_a_sheet_is_what_the_secret_says() -> None:
    secret, sheet = Secret(b"s" * 32), Sheet(["entity", "relation"], 0, 5, 1, torch.device("cpu"))
    on(sheet, of(4, 2), 5, secret)
    assert sheet.there.tolist() == [2, 2]
    assert sheet.placed(5).tolist() == [4, 2, 2, 3, 4]
    assert sheet.negatives.tolist() == [secret.cipher_key(7, "negatives").tolist()]
    assert sheet.noise("relation").tolist() == secret.cipher_key(7, "noise", "relation").tolist()


def test_a_sheet_deals_triples_out_to_chunks_by_their_places() -> None:
    sheet = Sheet(["entity"], 3, 9, 1, torch.device("cpu"))
    on(sheet, of(8, 2, 0, 3, 11), 9)
    assert sheet.placed(9).tolist() == [0, 3, 8, 2, 11, 5, 6, 7, 8]
    assert sheet.starts.tolist() == [0, 2, 2, 9], "padding is in the last"
    assert sheet.there.tolist() == [5, 5]


@pytest.mark.parametrize("chunks", [0, 3])
def test_a_sheet_knows_whose_triples_are_whose(chunks: int) -> None:
    sheet, units = Sheet(["entity"], chunks, 12, 3, torch.device("cpu")), {0: {8, 2}, 1: {5}, 2: {0, 3, 11}}
    places = np.array([8, 2, 5, 0, 3, 11])
    drawn = Drawn(places, np.array([0, 2, 3, 6]), places)
    on(sheet, drawn, 9)
    placed, found = sheet.placed(9), sheet.units(9)
    assert sheet.there.tolist() == [6, 3]
    for u, own in units.items():
        mine = found.order[found.starts[u] : found.starts[u + 1]]
        assert set(placed[mine].tolist()) == own
        assert (found.unit[mine] == u).all()
    assert found.starts[3:].tolist() == [6] * 7
    assert (found.unit[6:] == 3).all(), "padding is of a unit that is not there"
    assert sorted(found.order.tolist()) == list(range(9))


@pytest.mark.parametrize("number", [1e20, math.inf, math.nan])
@pytest.mark.parametrize("name", [*MODELS])
def test_rows_that_plain_steps_have_blown_up_do_not_tell_who_meets_them(name: str, number: float) -> None:
    """A hub decides rows and learning rate. NaN, which ends a round, must not come of a sampled triple."""
    graph, trainer = random_graph(0, 12, 3, 40), Trainer(batch_size=8, negatives=4, optimizer="sgd", lr=0.1)
    for drawn in (np.arange(6), np.arange(0)):
        training = private(trainer, graph, half_of(graph), model=MODELS[name](dim=8))
        for _, table in training.tables.named().values():
            table[::3] = number
        take(training, 0, of(*drawn.tolist()))
        for _, table in training.tables.named().values():
            assert table.isfinite().all()
    if name == "rotate":  # has no constraint that makes rows short again
        with pytest.raises(Diverged, match=r"within 1e\+09"):
            training.check_rows()


def test_rows_are_cut_only_where_steps_can_make_them_long() -> None:
    graph = random_graph(0, 12, 3, 40)
    for options, cut_ in (
        ({}, False),
        ({"optimizer": "sgd"}, True),
        ({"lr": 2e3}, True),
        ({"l3": 2.0}, True),
    ):
        assert private(Trainer(batch_size=8, **options), graph, half_of(graph)).grows is cut_


# Samples and negatives


def test_samples_are_poisson() -> None:
    count, rate, steps = 60, 0.05, 4000
    cadence, trainer, units = Cadence(rate, steps, 3.0), Trainer(sides="tail"), Units.triples(60)
    found = poisson_batches(Secret(b"x" * 32), cadence, units, range(steps), trainer, 0, CPU)
    drawn = [step.drawn.places for some in found for step in some]
    sizes = np.array([len(sample) for sample in drawn])
    assert all(len(set(sample.tolist())) == len(sample) for sample in drawn)
    assert abs(sizes.mean() - count * rate) < 5 * (count * rate * (1 - rate) / steps) ** 0.5
    assert sizes.var() == pytest.approx(count * rate * (1 - rate), rel=0.15)
    assert (sizes == 0).mean() == pytest.approx((1 - rate) ** count, rel=0.25)
    often = np.bincount(np.concatenate(drawn), minlength=count) / steps
    assert np.abs(often - rate).max() < 5 * (rate * (1 - rate) / steps) ** 0.5


@pytest.mark.parametrize("rate", [0.0, 1e-6, 1 / 256, 0.0038, 0.3, 0.999, 1.0])
def test_a_sample_has_the_rate_that_is_accounted(rate: float) -> None:
    count = 400_000
    (chosen,) = samples(Secret(b"y" * 32).cipher_key(3, "sample")[None], count, rate, CPU)
    assert abs(len(chosen) - rate * count) <= 5 * (rate * (1 - rate) * count) ** 0.5
    assert (np.diff(chosen) > 0).all()


def test_persons_have_their_triples() -> None:
    units = Units.persons(np.array([2, 0, 2, 4, 2, 0]), 6, 5)
    own = [set(units.places[a:b].tolist()) for a, b in pairwise(units.starts)]
    assert own == [{1, 5}, set(), {0, 2, 4}, set(), {3}, set()], "some have none"
    assert (len(units), units.most) == (6, 5)
    drawn = units.drawn(np.array([1, 2, 4, 5]))
    assert [set(drawn.places[a:b].tolist()) for a, b in pairwise(drawn.starts)] == [{0, 2, 4}, {3}]
    with pytest.raises(ValueError, match="1 confidential triples of nobody"):
        Units.persons(np.array([0, -1]), 1, 5)
    with pytest.raises(ValueError, match="with 3 triples, expected at most 2"):
        Units.persons(np.array([0, 0, 0]), 1, 2)


def test_shuffled_batches_visit_every_triple_once_per_side() -> None:
    trainer = Trainer(batch_size=7)
    cadence = Cadence.of(trainer, PAPER, 30)
    assert (cadence.steps, cadence.rate, cadence.expected) == (8, 7 / 30, 7.0)
    units = Units.triples(30)
    found = [
        step
        for some in shuffled_batches(Secret(b"x" * 32), cadence, units, range(10, 18), trainer, 0, CPU)
        for step in some
    ]
    assert [step.number for step in found] == list(range(10, 18))
    assert [step.side for step in found] == [Side.HEAD, Side.TAIL] * 4
    for turn in range(2):
        seen = np.concatenate([step.drawn.places for step in found[turn::2]])
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
        on(sheet, of(*places), len(places))
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


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("privacy", [STRICT, PAPER], ids=lambda privacy: privacy.mode)
def test_a_step_keeps_nothing_of_the_steps_before(privacy: Privacy, chunk: int) -> None:
    """Scores that know who made them, and who is to get their gradients, kept whole batches alive."""
    trainer = Trainer(batch_size=8, negatives=2, loss="margin", sides="tail", chunk=chunk)
    training, alive = private(trainer, GRAPH, MARKS, privacy), []
    for number in range(6):
        take(training, number, of(0, 1, 2, 3))
        gc.collect()
        alive.append(sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()))
    assert alive[2:] == alive[2:3] * 4


def test_by_the_papers_rules_untouched_rows_stay() -> None:
    trainer = Trainer(batch_size=4, negatives=1, optimizer="sgd", sides="tail")
    training = private(trainer, GRAPH, MARKS, PAPER, noise=5.0)
    before = training.tables.entities.clone()
    take(training, 0, of(0, 1))
    batch = training.closed.batch(torch.tensor([0, 1]), Side.TAIL, 1, training.sheet.negatives)
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
        triples = differentiated(training.tables, training.objective, batch)
        units = Grouping.single(20, torch.device("cpu"))
        norms[percentile] = float(training._clipped(triples, units)[1])
        bounds = triples.squares(units).sum(0).sqrt()
        assert norms[percentile] == pytest.approx(float(bounds.quantile(percentile / 100)))
    assert norms[20.0] < norms[100.0]


# Ledger and secrets


def test_steps_are_in_the_ledger_before_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, taken = tmp_path / "ledger.jsonl", []
    training = private(TRAINER, GRAPH, MARKS, ledger=path)
    lay_out = Sheet.lay_out

    def check(self: Sheet, secret: Secret, steps: list[Step], sizes: list[int]) -> None:
        """Before any of them has a key."""
        for step in steps:
            assert any(step.number in entry.numbers for entry in read_ledger(path))
            taken.append(step.number)
        lay_out(self, secret, steps, sizes)

    monkeypatch.setattr(Sheet, "lay_out", check)
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
    keys = {
        tuple(first.cipher_key(n, *purpose))
        for n in range(50)
        for purpose in (("noise", "a"), ("noise", "b"), ("x",))
    }
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


# Persons


BY_PERSON = Privacy("strict", "entity", noise=1.0, delta=1e-5, accountant="rdp", per_person=4)


def by_person(
    owner: np.ndarray, persons: int, trainer: Trainer, model: str = "transe", most: int = 4
) -> PrivateTraining:
    """Training on GRAPH, of which MARKS belong to persons by `owner` [of the marked]."""
    whole = np.full(len(GRAPH.train), -1)
    whole[MARKS] = owner
    privacy = replace(BY_PERSON, per_person=most)
    cadence = Cadence.of(trainer, privacy, persons)
    made = MODELS[model](dim=8)
    return private(trainer, GRAPH, MARKS, privacy, model=made, cadence=cadence, owner=whole, persons=persons)


@pytest.mark.parametrize("chunk", [1, 5])
def test_persons_of_one_triple_each_are_triples(chunk: int) -> None:
    trainer = replace(TRAINER, chunk=chunk, optimizer="sgd")
    persons = int(MARKS.sum())
    people, triples = by_person(np.arange(persons), persons, trainer, most=1), private(trainer, GRAPH, MARKS)
    others = by_person(np.arange(persons) // 4, persons, trainer)
    for training in (people, triples, others):
        training.run(0, 2)
    for axis in Axis:  # the bounds count in what rounding can do to four triples
        near = {"rtol": 1e-3, "atol": 1e-4}
        assert torch.allclose(people.tables.table(axis), triples.tables.table(axis), **near)
        assert not torch.allclose(others.tables.table(axis), triples.tables.table(axis), **near)


@pytest.mark.parametrize("chunk", [1, 5])
@pytest.mark.parametrize("name", ["transe", "rotate", "distmult", "transr"])
def test_one_person_moves_the_sum_by_at_most_the_clipping_norm(name: str, chunk: int) -> None:
    """Also where the person's triples meet in rows, and in a step with noise: the same in both."""
    trainer = Trainer(batch_size=6, negatives=6, chunk=chunk, lr=1.0, optimizer="sgd", sides="tail")
    count = int(MARKS.sum())
    owner = np.arange(count) // 4
    training = by_person(owner, int(owner.max()) + 1, trainer, name)
    before = {axis: table.clone() for axis, table in zip(Axis, _stretched(training), strict=True)}

    def summed(left_out: int | None) -> torch.Tensor:
        for axis, rows in before.items():
            training.tables.table(axis).copy_(rows)
        drawn = training.units.drawn(np.array([u for u in range(6) if u != left_out]))
        # a place keeps its chunk, and so its negatives, whoever else is there
        take(training, 7, drawn)
        return torch.cat([(before[axis] - training.tables.table(axis)).flatten() for axis in Axis])

    expected = training.protection.cadence.expected
    whole = summed(None)
    for person in range(6):
        gap = float((whole - summed(person)).norm()) * expected
        assert 0.05 < gap <= 1.0 + 1e-3, "clip is 1; rows are rounded"


def test_whose_negatives_are_shared_does_not_depend_on_what_is_said_about_a_person() -> None:
    """Neighbours: one of them says nothing about one person, so that the others' places move up."""
    trainer, count = replace(TRAINER, batch_size=8, chunk=4), int(MARKS.sum())
    owner, persons = np.arange(count) // 4, -(-count // 4)
    place = np.flatnonzero(MARKS)

    def shared(*gone: int) -> tuple[int, set[frozenset[tuple[int, ...]]]]:
        here = np.ones(len(GRAPH.train), bool)
        here[place[np.isin(owner, gone)]] = False
        graph, whole = graph_of(GRAPH.train[here], 40, 3), np.full(len(GRAPH.train), -1)
        whole[MARKS] = owner
        how = {"cadence": Cadence.of(trainer, BY_PERSON, persons), "owner": whole[here], "persons": persons}
        training = private(trainer, graph, MARKS[here], BY_PERSON, **how)
        drawn = training.units.drawn(np.array([u for u in range(persons) if u != 3]))
        on(training.sheet, drawn, len(drawn.places))
        starts, triples = training.sheet.starts, training.closed.triples.T
        placed = training.sheet.placed(len(drawn.places))
        chunks = [triples[placed[a:b]].tolist() for a, b in pairwise(starts.tolist())]
        return training.sheet.chunks, {frozenset(map(tuple, chunk)) for chunk in chunks}

    assert shared(3) == shared()
    assert shared(*range(5, persons))[0] == shared()[0]


def _stretched(training: PrivateTraining) -> list[torch.Tensor]:
    for axis in Axis:
        training.tables.table(axis).mul_(3)  # so that norms are large
    return [training.tables.table(axis) for axis in Axis]
