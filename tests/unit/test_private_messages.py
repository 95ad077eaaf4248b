"""What a hub sees of a private site: one confidential triple changes noised values, and nothing else."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkge.errors import DataWarning
from fedkge.exchange.rows import Message
from fedkge.graphs.graph import Graph
from fedkge.graphs.marks import mark_share
from fedkge.methods import METHODS
from fedkge.privacy import Privacy
from fedkge.training.confidential import opened
from fedkge.training.secret import Secret
from small_federations import federated, small_federation

pytest.importorskip("numba")

MARKED = mark_share(small_federation(), 0.5, 0)
STRICT = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
BUDGET = {"mode": "strict", "epsilon": 30.0, "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}


def neighbour(graph: Graph) -> Graph:
    """The same graph with another confidential triple in the place of one, over the same names."""
    assert graph.confidential is not None
    known = {tuple(triple) for triple in graph.all().tolist()}
    at = int(np.flatnonzero(graph.confidential)[3])
    h, r, t = graph.train[at].tolist()
    other = next(o for o in range(graph.n_entities) if (h, r, o) not in known and o != t)
    train = graph.train.copy()
    train[at, 2] = other
    return replace(graph, train=train)


def transcript(path: Path, sites: dict[str, Graph], **options: Any) -> list[Message]:
    heard: list[Message] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedkge.nodes.protection.new_secret", lambda site: Secret(site.encode().ljust(32)))
        patch.setattr("fedkge.runs.folder.token_hex", lambda size: "0" * 2 * size)
        own = {"account": {"folder": str(path / "accounts")}}  # runs of one name, each with its own account
        federated(path, sites, tap=heard.append, **own, **options).play()
    return heard


def shape(message: Message) -> Any:
    """All of a message but numbers that noise has gone into: rows, and metrics made from them."""
    body = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in message.body.items()}
    if message.kind in ("join", "shared"):
        body = {name: tensor.tolist() for name, tensor in message.body.items()}
    note = dict(message.note)
    if message.kind == "metrics":
        counts = {site: found["count"] for site, found in note.pop("metrics").items()}
        views = {view: sorted(of) for view, of in note.pop("views", {}).items()}
        note |= {"counts": counts, "views": views}
    head = (message.protocol, message.run, message.sender, message.recipient, message.kind, message.round)
    return (*head, body, note)


def changed(one: list[Message], two: list[Message]) -> list[str]:
    """Tensors that differ between two transcripts."""
    return [
        name
        for first, second in zip(one, two, strict=True)
        for name, tensor in first.body.items()
        if not tensor.equal(second.body[name])
    ]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedep", {}),
        ("fedep", {"privacy": BUDGET}),
        ("fedlu", {}),
        ("pfedeg", {}),
        ("fede", {"codec": {"name": "int8", "delta": True}}),
        ("single", {}),
    ],
)
def test_a_confidential_triple_changes_nothing_but_noised_values(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    options = {"privacy": STRICT, "rounds": 3, "evaluate": {"every": 1, "patience": 0}, **options}
    other = {**MARKED, "a": neighbour(MARKED["a"])}
    one, two = (
        transcript(tmp_path / str(n), sites, method={"name": method}, **options)
        for n, sites in enumerate((MARKED, other))
    )
    assert len(one) == len(two)
    best = ("best",)  # which validation was best is made from the metrics
    for first, second in zip(one, two, strict=True):
        a, b = (
            shape(replace(m, note={k: v for k, v in m.note.items() if k not in best}))
            for m in (first, second)
        )
        assert a == b
    uploads = [m for m in one if m.kind == "upload" and m.sender == "a"]
    assert method == "single" or uploads
    for message in one:
        assert message.note.keys() <= {
            "fedkge",
            "version",
            "queries",
            "allows",
            "taken",
            "best",
            "held",
            "dials",
            "metrics",
            "views",
        }
    assert method == "single" or changed(one, two), "the triple was trained on"


def silent(graph: Graph, person: str) -> Graph:
    """The same graph, in which nothing is said about a person."""
    train, valid, test = (
        part[~(part[:, ::2] == graph.entities.id(person)).any(axis=1)] for part in graph.splits().values()
    )
    assert len(train) < len(graph.train) - 3
    return replace(graph, train=train, valid=valid, test=test)


def asked_about(graph: Graph, person: str) -> Graph:
    """The same graph, in which a person is one more answer to every question of valid, by test."""
    one, known = graph.entities.id(person), {tuple(triple) for triple in graph.all().tolist()}
    answers = [[h, r, one] for h, r, _ in graph.valid.tolist()] + [
        [one, r, t] for _, r, t in graph.valid.tolist()
    ]
    more = [triple for triple in answers if tuple(triple) not in known]
    assert more
    return replace(graph, test=np.concatenate((graph.test, np.unique(more, axis=0))))


@pytest.mark.parametrize("method", ["fedep", "fedlu", "single"])
def test_everything_said_about_one_person_changes_nothing_but_noised_values(
    tmp_path: Path, method: str
) -> None:
    """Not how many triples there are, nor how many of them are confidential."""
    sites = small_federation()
    unit = {"unit": "entity", "per_person": 50}
    options = {
        "privacy": {**STRICT, **unit},
        "persons": {"prefixes": ["e12", "e13", "e3"]},
        "rounds": 3,
        "evaluate": {"every": 1, "patience": 0},
    }
    other = {**sites, "b": silent(sites["b"], "e13")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # that some triples are about two persons
        one, two = (
            transcript(tmp_path / str(n), own, method={"name": method}, **options)
            for n, own in enumerate((sites, other))
        )
    assert len(one) == len(two)
    for first, second in zip(one, two, strict=True):
        a, b = (
            shape(replace(m, note={k: v for k, v in m.note.items() if k != "best"})) for m in (first, second)
        )
        assert a == b
    assert method == "single" or changed(one, two), "the person was trained on"


@pytest.mark.filterwarnings("ignore:no two sites have anything")  # only triples about persons have relations
@pytest.mark.parametrize(
    "method", [name for name in METHODS if not METHODS[name].hubless and name != "collective"]
)
def test_what_is_said_about_a_person_in_test_changes_no_message(tmp_path: Path, method: str) -> None:
    """Not even as an answer that others are ranked without."""
    sites = small_federation()
    options = {
        "privacy": {"mode": "u-only", "unit": "entity"},
        "persons": {"prefixes": ["e12", "e13", "e3"]},
        "rounds": 2,
        "evaluate": {"every": 1, "patience": 0},
        "method": {"name": method, **({"small": 4} if method == "fedkd" else {})},
    }
    other = {**sites, "b": asked_about(sites["b"], "e13")}
    one, two = (transcript(tmp_path / str(n), own, **options) for n, own in enumerate((sites, other)))
    assert any(message.kind == "metrics" for message in one)
    assert [message.note for message in one] == [message.note for message in two]
    assert not changed(one, two)


def test_questions_of_a_relation_that_only_confidential_triples_have_are_not_in_messages(
    tmp_path: Path,
) -> None:
    sites = small_federation()
    secret = int(sites["a"].valid[0, 1])
    marks = {name: graph.train[:, 1] == secret for name, graph in sites.items()}
    closed = {name: replace(graph, confidential=marks[name]) for name, graph in sites.items()}
    options = {"privacy": {"mode": "u-only"}, "rounds": 2, "evaluate": {"every": 2, "patience": 0}}
    heard = transcript(tmp_path, closed, method={"name": "fedep"}, **options)
    open_ones = {name: 2 * int((graph.valid[:, 1] != secret).sum()) for name, graph in sites.items()}
    assert open_ones["a"] < 2 * len(sites["a"].valid)
    joined = [m.note["queries"] for m in heard if m.kind == "join"]
    told = [m.note["metrics"] for m in heard if m.kind == "metrics"]
    assert {site: count for one in joined for site, count in one.items()} == open_ones
    assert {site: of["count"] for one in told for site, of in one.items()} == open_ones


def test_accuracy_of_peers_in_the_open_depends_on_no_confidential_triple() -> None:
    graph = MARKED["a"]
    one, two = (opened(of, Privacy(mode="u-only")) for of in (graph, neighbour(graph)))
    assert all(
        x.tolist() == y.tolist() for x, y in zip(one.splits().values(), two.splits().values(), strict=True)
    )
    kept = opened(graph, Privacy())
    assert kept.train is graph.train, "where nothing is secret, all triples filter"


def test_the_last_person_with_triples_changes_nothing_but_noised_values(tmp_path: Path) -> None:
    """A site whose persons are all silent adds noise like any other."""
    sites = small_federation()
    quiet = silent(sites["b"], "e13")
    for name in ("e12", "e3"):
        person = quiet.entities.id(name) if name in quiet.entities else -1
        parts = (part[~(part[:, ::2] == person).any(axis=1)] for part in quiet.splits().values())
        quiet = replace(quiet, **dict(zip(("train", "valid", "test"), parts, strict=True)))
    options = {
        "privacy": {**BUDGET, "unit": "entity", "per_person": 50},
        "persons": {"prefixes": ["e13"]},
        "rounds": 2,
        "evaluate": {"every": 1, "patience": 0},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        one, two = (
            transcript(tmp_path / str(n), own, method={"name": "fedep"}, **options)
            for n, own in enumerate(({**sites, "b": silent(sites["b"], "e12")}, {**sites, "b": quiet}))
        )
    told = [[m.note.get("allows") for m in heard if m.sender == "b"] for heard in (one, two)]
    assert told[0] == told[1]
    assert any(told[1])
    assert (tmp_path / "1" / "sites" / "b" / "ledger.jsonl").is_file()


def test_sites_without_noise_send_no_loss_or_digest_either(tmp_path: Path) -> None:
    heard = transcript(tmp_path, small_federation(), method={"name": "fedlu"})
    assert {key for message in heard for key in message.note} == {
        "fedkge",
        "version",
        "queries",
        "taken",
        "best",
        "held",
        "metrics",
        "views",
    }
