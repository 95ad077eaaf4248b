"""Interference and decay: the losses by a slow witness, who moves, and what is never a negative."""

from __future__ import annotations

from math import exp, log, log1p

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError
from fedkge.evaluation import Known, metrics, rank
from fedkge.methods.single import Single
from fedkge.methods.unlearn import Forgetting, Lesson, Unlearn
from fedkge.models import MODELS, Side, Tables
from fedkge.randomness import generator
from fedkge.training import Corpus, Trainer, Training
from fedkge.training import interference as interference_module
from fedkge.training.decay import Decay
from fedkge.training.interference import Confusion, Interference, avoiding, shell
from fedkge.training.levels import above, levels
from small_federations import small_federation

TRAINER = Trainer(epochs=1, batch_size=16, negatives=8, lr=0.01)
GRAPH = small_federation()["b"]
FORGOTTEN, RETAINED = GRAPH.train[:9], GRAPH.train[9:]
LESSON = Lesson(
    "b", type(GRAPH)(GRAPH.entities, GRAPH.relations, RETAINED, GRAPH.valid, GRAPH.test), FORGOTTEN
)


def tables(second: bool = False, model: str = "transe", dim: int = 8) -> Tables:
    keys = (torch.arange(GRAPH.n_entities), torch.arange(GRAPH.n_relations))
    made = Tables.create(MODELS[model](dim=dim), *keys, 0)
    if second:
        made.second = Tables.create(MODELS[model](dim=dim), *keys, 1)
        made.second.relations = made.relations
    return made


def interference(confusion: Confusion, own: Tables, trainer: Trainer = TRAINER) -> Interference:
    return Interference(confusion, 16, trainer, own, {"b": LESSON.graph}, {"b": FORGOTTEN}, 0)


def softplus(x: float) -> float:
    return max(x, 0) + log1p(exp(-abs(x)))


def slow(scores: list[float], hard: float, soft: float, variant: str) -> float:
    """Eqs. 12 and 13 of one triple, written out."""
    own, others = scores[0], scores[1:]
    n = len(others)
    down = -log(1 / (1 + exp(own)))
    rest = -sum(log(1 / (1 + exp(s))) for s in others) / n
    if variant == "code":
        apart = sum((s - own) ** 2 for s in others) ** 0.5
        return hard * (10 * down + rest) / 2 + soft * apart
    return hard * (down + rest) + soft * sum(abs(s - own) for s in others) / n


@pytest.mark.parametrize("variant", ["paper", "code"])
@pytest.mark.parametrize(("hard", "soft"), [(1.0, 0.1), (1.0, 0.0), (0.0, 0.1)])
def test_the_confusions_are_equations_12_and_13(hard: float, soft: float, variant: str) -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (5, 7)))
    found = Confusion(hard, soft, variant=variant).of(scores)  # type: ignore[arg-type]
    for i, row in enumerate(scores.tolist()):
        assert found[i].item() == pytest.approx(slow(row, hard, soft, variant), rel=1e-12)


def test_ascent_is_the_training_loss_turned_round() -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (5, 7)))
    found = Confusion(variant="ascent").of(scores)
    loss = [softplus(-row[0]) + sum(map(softplus, row[1:])) / 6 for row in scores.tolist()]
    assert torch.allclose(found, -torch.tensor(loss, dtype=torch.float64))


def test_without_both_confusions_nothing_would_be_forgotten() -> None:
    with pytest.raises(ConfigError, match="hard, soft"):
        Confusion(0.0, 0.0)


@pytest.mark.parametrize("model", ["transe", "complex", "rotate"])
def test_a_step_is_that_of_a_slow_float64_witness(model: str) -> None:
    """Two tables, entity rows only, plain gradient descent: by autograd of the equations as they stand."""
    trainer = Trainer(epochs=1, batch_size=16, negatives=8, lr=0.05, optimizer="sgd")
    own = tables(second=True, model=model)
    steps = interference(Confusion(), own, trainer)
    steps._shuffle(0)
    batch = steps._batch((len(FORGOTTEN), len(FORGOTTEN)), Side.HEAD, steps.clock)
    assert own.second is not None
    rows = [one.double().clone().requires_grad_() for one in (own.entities, own.second.entities)]
    relation = own.relations.double()[batch.relation][:, None]
    scores = [
        own.model.score(table[batch.index], relation, table[batch.anchor][:, None]) for table in rows
    ]  # the head is asked for
    chance = [score.log_softmax(-1) for score in scores]
    loss = torch.zeros((), dtype=torch.float64)
    for mine, teacher in ((0, 1), (1, 0)):
        s, n = scores[mine], scores[mine].shape[1] - 1
        hard = torch.log1p(s[:, 0].exp()) + torch.log1p(s[:, 1:].exp()).sum(-1) / n
        soft = (s[:, 1:] - s[:, :1]).abs().sum(-1) / n
        taught = chance[teacher].detach()
        kl = (taught.exp() * (taught - chance[mine])).sum(-1)
        loss = loss + ((hard + 0.1 * soft + 2.0 * kl) / len(FORGOTTEN)).sum()
    loss.backward()
    expected = [(table - 0.05 * table.grad).detach() for table in rows]  # type: ignore[operator]
    before = own.relations.clone()
    steps._take([((len(FORGOTTEN), len(FORGOTTEN)), Side.HEAD)], False)
    for table, one in zip((own.entities, own.second.entities), expected, strict=True):
        assert torch.allclose(table.double(), one, atol=2e-5)
    assert torch.equal(own.relations, before)


def test_relations_move_when_they_are_asked_to() -> None:
    own, before = tables(), tables()
    interference(Confusion(relations=True), own).run(0)
    assert not torch.equal(own.relations, before.relations)


def test_triples_that_are_not_active_move_nothing() -> None:
    own, before = tables(), tables()
    steps = interference(Confusion(), own)
    steps.activate([{side: np.zeros(len(FORGOTTEN), bool) for side in Side}])
    steps.run(0)
    assert torch.equal(own.entities, before.entities)
    steps.activate([{side: np.arange(len(FORGOTTEN)) == 0 for side in Side}])
    steps.run(1)
    assert not torch.equal(own.entities, before.entities)


def test_negatives_are_never_true_triples_forgotten_or_retained() -> None:
    steps = interference(Confusion(), tables(), Trainer(epochs=1, batch_size=16, negatives=64))
    true = set(map(tuple, GRAPH.train.tolist()))
    for epoch in range(3):
        steps._shuffle(epoch)
        for side in Side:
            drawn = _drawn(steps, side)
            assert drawn
            assert not drawn & true


def test_decay_draws_no_forgotten_triple() -> None:
    plain = Corpus.of({"b": LESSON.graph}, 0)
    avoids = avoiding(plain, {"b": FORGOTTEN})
    trainer = Trainer(epochs=1, batch_size=512, negatives=64)
    forgotten = set(map(tuple, FORGOTTEN.tolist()))
    hit = {}
    for name, corpus in (("plain", plain), ("avoids", avoids)):
        steps = Decay(trainer, tables(), corpus, trainer.objective)
        steps._shuffle(0)
        hit[name] = bool(_drawn(steps, Side.TAIL) & forgotten)
    assert hit == {"plain": True, "avoids": False}  # the first shows that the second could have
    assert torch.equal(plain.subsampling(), avoids.subsampling())


def _drawn(steps: Interference | Decay, side: Side) -> set[tuple[int, ...]]:
    """All negatives of the first batch."""
    batch = steps._batch((steps.counts[0], steps.chunks[0]), side, steps.clock)
    columns = [batch.anchor[:, None].expand_as(batch.index), batch.relation[:, None].expand_as(batch.index)]
    h, t = (batch.index, columns[0]) if side is Side.HEAD else (columns[0], batch.index)
    return set(map(tuple, torch.stack((h, columns[1], t), -1)[:, 1:].reshape(-1, 3).tolist()))


def test_avoiding_nothing_is_the_same_corpus() -> None:
    corpus = Corpus.of({"b": GRAPH}, 0)
    assert avoiding(corpus, {"b": GRAPH.train[:0]}) is corpus


def test_in_decay_the_tables_take_turns() -> None:
    own = tables(second=True)
    corpus = Corpus.of({"b": LESSON.graph}, 0)

    def both(at: Tables, batch: object) -> torch.Tensor:
        assert at.second is not None
        return TRAINER.objective(at, batch) + TRAINER.objective(at.second, batch)  # type: ignore[arg-type]

    steps = Decay(TRAINER, own, corpus, both)
    steps._shuffle(0)
    assert own.second is not None
    moved = []
    for turn in (0, 1):
        before = [own.entities.clone(), own.second.entities.clone(), own.relations.clone()]
        steps._taken(turn, (steps.counts[0], steps.chunks[0]), Side.TAIL)
        now = [own.entities, own.second.entities, own.relations]
        moved.append([not torch.equal(a, b) for a, b in zip(before, now, strict=True)])
    assert moved == [[True, False, False], [False, True, False]]


def test_decay_of_one_table_is_ordinary_training_without_relations() -> None:
    one, two = tables(), tables()
    corpus = Corpus.of({"b": LESSON.graph}, 0)
    Decay(TRAINER, one, corpus, TRAINER.objective, relations=True).run(0, 2)
    Training(TRAINER, shell(two), corpus).run(0, 2)
    assert torch.equal(one.entities, two.entities)
    assert torch.equal(one.relations, two.relations)


def test_levels_are_held_out_ranks_of_the_same_relation_dealt_out_in_order() -> None:
    random = np.random.default_rng(1)
    forgotten = np.stack([np.arange(400), np.arange(400) % 2, np.arange(400)], 1)
    heldout = np.stack([np.arange(600), np.arange(600) % 2, np.arange(600)], 1)
    own = {side: random.integers(1, 5, 400).astype(float) for side in Side}
    held = {side: np.where(heldout[:, 1] == 0, 10.0, 100.0) for side in Side}
    level = levels(own, forgotten, held, heldout, generator(0, "x"))
    assert (level[Side.HEAD] == np.where(forgotten[:, 1] == 0, 10, 100)).all()
    held = {side: random.integers(1, 50, 600).astype(float) for side in Side}
    level = levels(own, forgotten, held, heldout, generator(0, "x"))
    again = levels(level, forgotten, held, heldout, generator(0, "x"))
    assert not any(mask.any() for mask in above(level, again).values())  # who is at the level is left alone
    assert abs(np.mean(level[Side.TAIL]) - np.mean(held[Side.TAIL])) < 3
    for relation in (0, 1):
        mine = forgotten[:, 1] == relation
        order = np.argsort(own[Side.TAIL][mine], kind="stable")
        assert (np.diff(level[Side.TAIL][mine][order]) >= 0).all()


def test_both_modes_push_forgotten_triples_down() -> None:
    raw = tables(dim=32)
    trainer = Trainer(epochs=60, batch_size=64, negatives=16, lr=0.02)
    Training(trainer, shell(raw), Corpus.of({"b": GRAPH}, 0)).run(0)
    known = Known.from_graph(LESSON.graph)

    def mrr(at: Tables) -> float:
        return metrics(rank(at, FORGOTTEN, known))["mrr"]

    for mode in ("target", "paper"):
        own = raw.to("cpu")
        work = Forgetting(Unlearn(mode, epochs=40), TRAINER, [LESSON], {"b": own}, 0)  # type: ignore[arg-type]
        said = work.interfere(0, {"b": own})["b"]
        assert mrr(own) < mrr(raw) / 2
        assert torch.equal(own.relations, raw.relations)
        if mode == "target":
            assert said["above"] < len(FORGOTTEN)  # of two questions each, most have come to their level
        else:
            assert said["epochs"] == 40


@pytest.mark.parametrize("mode", ["paper", "target"])
def test_sites_that_forget_in_one_go_forget_as_they_would_alone(mode: str) -> None:
    """Bit by bit; with the level, as long as none has come to it before the others."""
    federation = small_federation()
    how, trainer = Unlearn(mode, epochs=2, decay=2), Trainer(epochs=1, batch_size=16, negatives=8, lr=1e-4)  # type: ignore[arg-type]
    lessons, own = [], {}
    for name, graph in federation.items():
        left = type(graph)(graph.entities, graph.relations, graph.train[9:], graph.valid, graph.test)
        lessons.append(Lesson(name, left, graph.train[:9]))
        keys = torch.arange(graph.n_entities), torch.arange(graph.n_relations)
        own[name] = Tables.create(MODELS["transe"](dim=8), *keys, 0)
        corpus = Corpus.of({name: graph}, 0)
        Training(Trainer(epochs=40, batch_size=64, negatives=8, lr=0.02), shell(own[name]), corpus).run(0)
    alone = {name: tables.to("cpu") for name, tables in own.items()}
    for lesson in lessons:
        work = Forgetting(how, trainer, [lesson], alone, 0)
        one = work.interfere(0, alone) | work.decay(Single(), alone)
        assert set(one) == {lesson.site}
    together = {name: tables.to("cpu") for name, tables in own.items()}
    work = Forgetting(how, trainer, lessons, together, 0)
    work.interfere(0, together)
    work.decay(Single(), together)
    for name in federation:
        assert not torch.equal(together[name].entities, own[name].entities)
        assert torch.equal(together[name].entities, alone[name].entities)


def test_only_triples_that_answer_a_query_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"b": type(GRAPH)(GRAPH.entities, GRAPH.relations, FORGOTTEN, GRAPH.valid, GRAPH.test)}
    corpus = Corpus.of(own, 0)
    few = avoiding(corpus, {"b": RETAINED}).answers
    monkeypatch.setattr(interference_module, "_asked", lambda triples, own: triples)
    every = avoiding(corpus, {"b": RETAINED}).answers
    assert len(few[Side.TAIL].known) < len(every[Side.TAIL].known)
    for side in Side:
        for i in range(len(FORGOTTEN)):
            found = [of[side].known[of[side].lo[i] : of[side].hi[i]].tolist() for of in (few, every)]
            assert found[0] == found[1]
