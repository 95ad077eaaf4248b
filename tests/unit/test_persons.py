"""Persons: who they are, whose a triple is, what is trained on; by no method does anything of them leave."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.audits.membership import Membership, pooled
from fedkge.audits.targets import Target, pair
from fedkge.config import to_toml
from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.exchange.rows import Message
from fedkge.exchange.wire import encode
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.indexing import graph_from_names
from fedkge.graphs.persons import (
    NOBODY,
    about_nobody,
    about_persons,
    belongs,
    limited,
    name_persons,
    owners,
    warn_of_nobody,
)
from fedkge.graphs.subgraph import in_name_order, merged, subgraph
from fedkge.methods import METHODS
from fedkge.methods.base import Part
from fedkge.methods.fkge import FKGE
from fedkge.methods.lending import lent
from fedkge.models import Tables
from fedkge.nodes.terms import Terms
from fedkge.privacy import Privacy
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment, Persons
from fedkge.runs.folder import RunFolder
from fedkge.runs.network import SiteFile
from fedkge.runtimes import network_site
from fedkge.runtimes.hello import REFUSAL, Refused
from fedkge.runtimes.meeting import Meeting
from fedkge.runtimes.network_site import UNFIT
from small_federations import experiment, federated, small_federation

pytest.importorskip("numba")
pytestmark = pytest.mark.filterwarnings("ignore:.*only triples about persons mention them")

KEY = bytes(range(32))
SITES = small_federation(relations_in_common=True)
PERSONS = {"prefixes": ["e12", "e13", "e14", "e3"]}  # e10 to e19 are at all three sites, e30 to e39 at one


def clinic() -> Graph:
    """Two patients, one of whom knows the other, and a drug of a class."""
    train = [
        ("patient/1", "takes", "drug"),
        ("patient/1", "has", "gout"),
        ("patient/2", "takes", "drug"),
        ("patient/1", "knows", "patient/2"),
        ("nurse", "treats", "patient/2"),
        ("patient/2", "knows", "patient/2"),
        ("drug", "of", "class"),
    ]
    return graph_from_names(train, [("patient/2", "has", "gout")], [("drug", "of", "gout")])


def named(graph: Graph, **who: Any) -> Graph:
    return name_persons({"a": graph}, **who)["a"]


def called(graph: Graph) -> set[str]:
    assert graph.persons is not None
    return {graph.entities[i] for i in np.flatnonzero(graph.persons).tolist()}


def test_persons_are_named_by_prefix_list_or_relation() -> None:
    assert called(named(clinic(), prefixes=["patient/"])) == {"patient/1", "patient/2"}
    assert called(named(clinic(), names=["nurse", "patient/2"])) == {"nurse", "patient/2"}
    assert called(named(clinic(), relations=["takes"])) == {"patient/1", "patient/2"}
    assert called(named(clinic(), names=["nurse"], relations=["has"])) == {"nurse", "patient/1", "patient/2"}


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ({"prefixes": ["patent/"]}, "no entity of any site begins with 'patent/'"),
        ({"prefixes": [""]}, "no entity of any site begins with ''"),
        ({"names": ["patient/3"]}, "no entity is named 'patient/3'; did you mean 'patient/"),
        ({"relations": ["take"]}, "no relation is named 'take'; did you mean 'takes'"),
        ({}, "no entity of any site is a person"),
        ({"names": list(clinic().entities)}, "all 6 entities of site 'a' are persons"),
    ],
)
def test_nonsense_about_persons_is_refused(who: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as error:
        named(clinic(), **who)
    assert said in str(error.value)


def test_a_site_without_a_person_is_said() -> None:
    """Perhaps its prefix was forgotten."""
    shop = graph_from_names([("drug", "costs", "much")], [], [])
    federation = name_persons({"clinic": clinic(), "shop": shop}, prefixes=["patient/"])
    with pytest.warns(DataWarning, match="site 'shop' has no persons: nothing is protected there"):
        warn_of_nobody(federation)
    warn_of_nobody({"clinic": federation["clinic"]})


def test_a_triple_belongs_to_its_one_person_and_one_about_two_to_nobody() -> None:
    graph = named(clinic(), prefixes=["patient/"])
    one, two = graph.entities.id("patient/1"), graph.entities.id("patient/2")
    assert belongs(graph, graph.train).tolist() == [one, one, two, -2, two, two, -1]
    number = {one: int(one > two), two: int(two > one)}
    assert owners(graph).tolist() == [number[one], number[one], number[two], -1, number[two], number[two], -1]
    assert about_persons(graph).confidential.tolist() == [True] * 6 + [False]  # type: ignore[union-attr]
    assert len(about_nobody(graph, "valid")) == 0
    assert len(about_nobody(graph, "test")) == 1


def test_renumbering_keeps_who_is_a_person() -> None:
    graph = named(clinic(), prefixes=["patient/"])
    for other in (in_name_order(graph), merged(graph), subgraph(graph, *(slice(None),) * 3)):  # type: ignore[arg-type]
        assert called(other) == called(graph)
    assert graph.digest() != clinic().digest()


def many(count: int = 9) -> Graph:
    train = [(f"p{i}", "r", f"x{k}") for i in range(4) for k in range(count if i else 2)]
    train += [("x0", "r", "x1"), ("p0", "r", "p1"), ("x2", "r", "x3")]
    graph = about_persons(named(graph_from_names(train), prefixes=["p"]))
    marks = graph.confidential.copy()  # type: ignore[union-attr]
    marks[-1] = True  # marked, and about nobody
    return replace(graph, confidential=marks)


def test_a_person_has_at_most_k_triples_and_every_confidential_one_is_about_one_person() -> None:
    kept = limited(many(), 5, KEY)
    owner, marks = owners(kept.graph), kept.graph.confidential
    assert marks is not None
    assert ((owner >= 0) == marks).all(), "what mech's step relies on"
    assert sorted(Counter(owner[marks].tolist()).values()) == [2, 5, 5, 5]
    assert (kept.several, kept.nobody, kept.beyond) == (1, 1, 12)
    assert len(kept.graph.train) == 17 + 1


def test_which_triples_a_person_keeps_depends_on_the_key_and_on_nobody_else() -> None:
    def of(graph: Graph, key: bytes) -> dict[str, set[str]]:
        train, names = limited(graph, 5, key).graph.train.tolist(), graph.entities
        return {p: {names[t] for h, _, t in train if names[h] == p} for p in ("p1", "p2", "p3")}

    whole = many()
    assert of(whole, KEY) == of(whole, KEY)
    assert of(whole, KEY) != of(whole, bytes(32))
    without = replace(
        whole,
        train=whole.train[whole.train[:, 0] != whole.entities.id("p2")],
        confidential=whole.confidential[whole.train[:, 0] != whole.entities.id("p2")],  # type: ignore[index]
    )
    a, b = of(whole, KEY), of(without, KEY)
    assert (a["p1"], a["p3"], set()) == (b["p1"], b["p3"], b["p2"])
    each = [of(whole, bytes([i]) * 32)["p1"] for i in range(200)]
    often = Counter(name for kept in each for name in kept)
    assert len(often) == 9, "chosen at random: every triple has its turn"
    assert min(often.values()) > 60


# Options


def test_the_unit_goes_with_strict_and_u_only_and_needs_persons() -> None:
    for mode in ("off", "fulldp", "paper"):
        rest = {} if mode == "off" else {"noise": 1.0, "delta": 1e-4}
        with pytest.raises(ConfigError, match="unit: 'entity' goes with mode"):
            Privacy(mode, "entity", **rest)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="per_person: of no use"):
        Privacy("strict", noise=1.0, delta=1e-4, per_person=3)
    with pytest.raises(ConfigError, match="per_person: expected at least 1"):
        Privacy("strict", "entity", noise=1.0, delta=1e-4, per_person=0)
    with pytest.raises(ConfigError, match="protects persons, and none is named"):
        experiment(privacy={"mode": "u-only", "unit": "entity"})
    strict = Privacy("strict", "entity", noise=1.0, delta=1e-4)
    assert (strict.per_person, strict.release(1.0, 0.1, 1).unit) == (32, "person")
    assert Privacy("strict", noise=1.0, delta=1e-4).release(1.0, 0.1, 1).unit == "triple"


def test_a_site_without_persons_takes_part_where_others_protect_theirs(tmp_path: Path) -> None:
    """On a network it knows only its own graph. It must say so: persons that were forgotten are an error."""
    strict = {"mode": "strict", "unit": "entity", "noise": 1.0, "delta": 1e-4}
    asked = experiment(method={"name": "fedep"}, persons=PERSONS, privacy=strict)
    own = SiteFile(graph=tmp_path / "a", folder=tmp_path, kit=tmp_path, key=tmp_path)
    with pytest.raises(ConfigError, match=r"none is named.*persons = \{ none = true \}"):
        own.experiment(asked)
    own = replace(own, persons=Persons(none=True))
    member, identity = own.sources("a", SITES["a"], own.experiment(asked))
    assert len(member.graph.train) == len(SITES["a"].train)
    assert len(identity.announced(Axis.ENTITY)) == SITES["a"].n_entities
    with pytest.raises(ConfigError, match="none: true, while some are named"):
        Persons(prefixes=("e1",), none=True)


def test_an_error_about_a_sites_data_is_not_told_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person that is misspelt in a list is suggested by its true name: to the site, and nobody else."""
    (tmp_path / "names").write_text("e1O\n")
    asked = experiment(method={"name": "fedep"}, persons=PERSONS)
    terms = {name: value for name, value in asked.config().items() if name in Terms.__dataclass_fields__}
    monkeypatch.setattr(network_site.HubHello, "read", lambda content: SimpleNamespace(terms=terms, round=0))
    monkeypatch.setattr(network_site, "LINGER", 0.0)
    site: Any = object.__new__(network_site.Site)
    site.name, site.graph, site.node = "a", SITES["a"], None
    site.file = SiteFile(graph=tmp_path / "a", folder=tmp_path, kit=tmp_path, key=tmp_path)
    site.file = replace(site.file, persons=Persons(names=tmp_path / "names"))
    sent: list[Any] = []
    site._send = lambda link, frames: sent.extend(frames)
    with pytest.raises(Refused, match="no entity is named 'e1O'; did you mean 'e1"):
        site._welcome(None, b"")
    assert sent == [(REFUSAL, UNFIT.encode())]
    terms["rounds"] = -1
    with pytest.raises(Refused, match="rounds"):
        site._welcome(None, b"")
    assert b"rounds" in sent[-1][1], "what is wrong with the hub's own words it is told"


def test_an_experiment_with_persons_parses_to_itself(tmp_path: Path) -> None:
    import tomllib

    one = experiment(persons={**PERSONS, "names": str(tmp_path / "x")}, account={"folder": str(tmp_path)})
    assert Experiment.parse(tomllib.loads(to_toml(one.config()))) == one


def test_pooled_graphs_cannot_keep_persons_apart() -> None:
    one = experiment(method={"name": "collective"}, persons=PERSONS)
    warnings.simplefilter("ignore", DataWarning)
    with pytest.raises(ConfigError, match="pools the graphs"):
        Sources.of(one, SITES).members(one)


@pytest.mark.parametrize("mode", ["off", "u-only"])
def test_triples_of_persons_are_confidential_where_persons_are_protected(mode: str) -> None:
    by = "entity" if mode == "u-only" else "triple"
    one = experiment(persons=PERSONS, privacy={"mode": mode, "unit": by}, evaluate={"every": 4})
    sources = Sources.of(one, SITES)
    for name, member in sources.members(one).items():
        persons = belongs(sources.named[name], member.graph.train) != -1
        assert persons.any() == (mode == "off")


# Nothing leaves


def renamed(graph: Graph) -> Graph:
    """The same graph with longer names, which cannot be in a message by chance."""
    names = [f"a person that is called {name}" for name in graph.entities]
    return replace(graph, entities=type(graph.entities)(names))


LONG = {site: renamed(graph) for site, graph in SITES.items()}
WHO = {"prefixes": [f"a person that is called {start}" for start in PERSONS["prefixes"]]}


def rows_in(message: Message, table: torch.Tensor, rows: np.ndarray[Any, Any]) -> int:
    """How many of these rows of a table stand in a message, number by number."""
    sent = [t for t in message.body.values() if t.ndim == 2 and t.shape[1] == table.shape[1]]
    if not sent or not len(rows):
        return 0
    found = torch.cat([t.float() for t in sent])
    own = table[torch.from_numpy(rows)]
    return int((own[:, None, :] == found[None]).all(-1).any(1).sum())


HUBS = [name for name in METHODS if not METHODS[name].hubless and name != "collective"]


@pytest.mark.filterwarnings("ignore:.*triples that are not trained on")
@pytest.mark.parametrize(
    ("method", "mode"),
    [
        *((name, "off") for name in HUBS),
        *((name, "u-only") for name in ("fedep", "single")),
        *((name, "strict") for name in ("fedep", "fedlu", "pfedeg", "feds", "single")),
    ],
)
def test_neither_rows_nor_names_nor_places_of_persons_are_in_any_message(
    tmp_path: Path, method: str, mode: str
) -> None:
    found, control = Counter[str](), Counter[str]()
    run: Any = None

    def read(message: Message) -> None:
        if message.sender not in LONG:
            return
        graph, site = run.sources.named[message.sender], run.sites[message.sender]
        persons, others = np.flatnonzero(graph.persons), np.flatnonzero(~graph.persons)
        content = encode(message)
        for kind, which in ((found, persons), (control, others)):
            ids = [graph.entities[i].encode() for i in which.tolist()]
            kind["name"] += sum(one in content for one in ids)
            for tables in (site.site.tables, site.site.travelling):
                kind["row"] += rows_in(message, tables.entities, which)
            if Axis.ENTITY in site.announced:
                shared = site.site.shared[Axis.ENTITY].local.numpy()
                kind["place"] += int(np.isin([*site.announced[Axis.ENTITY], *shared], which).sum())
        if message.kind == "join":
            assert message.note["queries"][message.sender] == 2 * len(about_nobody(graph, "valid"))
        if message.kind == "metrics":
            count = message.note["metrics"][message.sender]["count"]
            assert count == 2 * len(about_nobody(graph, "valid"))

    unit: dict[str, Any] = {"mode": mode, "unit": "triple" if mode == "off" else "entity"}
    noise = {"noise": 1.0, "delta": 1e-4, "accountant": "rdp"} if mode == "strict" else {}
    rest = {"privacy": unit | noise, "persons": WHO}
    own = {"name": method, **({"small": 4} if method == "fedkd" else {})}
    run = federated(tmp_path, LONG, tap=read, method=own, rounds=3, evaluate={"every": 1}, **rest)
    run.play()
    assert not found.total(), found
    if Axis.ENTITY in run.experiment.method.shares:
        assert control["name"], "what is no person is announced"
        assert control["place"]
    if method in ("fede", "fedep", "fedprox", "pfedeg", "fedlu", "fedepl", "feds"):
        assert control["row"], "rows of others travel, and the test finds them"


@pytest.mark.parametrize("mentions", [False, True])
def test_a_name_that_only_triples_about_persons_mention_is_not_announced(mentions: bool) -> None:
    """Nor does anything that is said about a person change what is announced."""
    graph = clinic()
    fewer = replace(graph, train=graph.train[[3, 4, 6]], valid=graph.valid[:0])
    one = experiment(
        method={"name": "fede", "share": "both"},
        persons={"prefixes": ["patient/"], "mentions": mentions},
    )
    told = {site: Sources.of(one, {"a": clinic(), "b": own}) for site, own in (("b", graph), ("c", fewer))}
    found = {site: sources.announced(one)["b"] for site, sources in told.items()}
    if mentions:
        assert found["b"] == {
            Axis.ENTITY: ["nurse", "drug", "gout", "class"],
            Axis.RELATION: ["takes", "has", "knows", "treats", "of"],
        }
        return
    assert found["b"] == found["c"] == {Axis.ENTITY: ["drug", "gout", "class"], Axis.RELATION: ["of"]}
    with pytest.warns(DataWarning, match="site 'a': 1 entities and 4 relations are not announced"):
        member = told["b"].members(one)["a"]
    identity = told["b"].identity(one, member)
    rows = identity.announced(Axis.ENTITY)
    assert sorted(identity.ids[Axis.ENTITY][i] for i in rows) == [b"class", b"drug", b"gout"]
    assert [identity.ids[Axis.RELATION][i] for i in identity.announced(Axis.RELATION)] == [b"of"]


@pytest.mark.parametrize("how", ["name", "link", "secret"])
def test_who_is_a_person_at_one_site_is_announced_by_no_other(tmp_path: Path, how: str) -> None:
    """The pharmacy has none of the relations that name persons; a link would rename its customer."""
    customer = "patient/1" if how == "name" else "the customer"
    train = [("drug", "sold to", customer), ("drug", "of", "class"), ("drug", "sold to", "shop")]
    pharmacy = graph_from_names(train, [("drug", "of", "shop")], [("drug", "of", customer)])
    (tmp_path / "relations").write_text("takes\n")
    (tmp_path / "links.tsv").write_text("patient/1\tthe customer\n")
    (tmp_path / "secret").write_bytes(bytes(32))
    align = {} if how == "name" else {"entities": str(tmp_path / "links.tsv")}
    one = experiment(
        method={"name": "fede"},
        persons={"relations": str(tmp_path / "relations")},
        privacy={"mode": "u-only", "unit": "entity"},
        align=align | ({"secret": str(tmp_path / "secret")} if how == "secret" else {}),
    )
    sources = Sources.of(one, {"a": clinic(), "b": pharmacy})
    assert called(sources.named["b"]) == {customer}
    assert sorted(sources.announced(one)["b"][Axis.ENTITY]) == ["class", "drug", "shop"]
    assert sources.named["b"].confidential is not None
    assert sources.named["b"].confidential.sum() == 1, "what is said about that person there is confidential"
    member = sources.members(one)["b"]
    assert len(member.graph.train) == 2


@pytest.mark.parametrize("intersect", ["ids", "psi"])
def test_peers_align_lend_and_send_nothing_of_persons(tmp_path: Path, intersect: str) -> None:
    """Rows are sent as they are (`translate = "none"`), so that a person's would be found."""
    method = {
        "name": "fkge",
        "translate": "none",
        "first": 2,
        "virtual": 4,
        "edges": "all",
        "intersect": intersect,
        "apart": False,
    }
    found, control = Counter[str](), Counter[str]()
    run: Any = None

    def read(message: Message) -> None:
        graph, own = run.sources.named[message.sender], run.peers[message.sender].own
        content = encode(message)
        for kind, which in (
            (found, np.flatnonzero(graph.persons)),
            (control, np.flatnonzero(~graph.persons)),
        ):
            kind["name"] += sum(graph.entities[i].encode() in content for i in which.tolist())
            for tables in (own.best, own.tables):
                kind["row"] += rows_in(message, tables.entities, which)

    one = experiment(method=method, rounds=6, evaluate={"every": 2, "patience": 1}, persons=WHO)
    sources = Sources.of(one, LONG)
    run = Meeting(one, sources, RunFolder.create(tmp_path, one, False), torch.device("cpu"), tap=read)
    run.sources = sources
    run.play()
    assert not found.total(), found
    assert control["row"]
    assert (control["name"] > 0) == (intersect == "ids")
    for peer in run.peers.values():
        graph = sources.named[peer.id]
        assert graph.persons is not None
        for aligned in peer.aligned.values():
            assert not graph.persons[aligned[Axis.ENTITY].numpy()].any()


@pytest.mark.parametrize("judge", ["mrr", "accuracy"])
def test_peers_without_questions_about_nobody_keep_the_last_round(tmp_path: Path, judge: str) -> None:
    method = {"name": "fkge", "translate": "none", "first": 2, "apart": False, "judge": judge}
    one = experiment(method=method, rounds=4, evaluate={"every": 2, "patience": 1}, persons=WHO)
    sources = Sources.of(one, LONG)
    parts = {site: belongs(graph, graph.valid) != NOBODY for site, graph in sources.named.items()}
    asked = {site: replace(graph, valid=graph.valid[parts[site]]) for site, graph in sources.named.items()}
    one_of = Sources.of(one, asked)
    run = Meeting(one, one_of, RunFolder.create(tmp_path, one, False), torch.device("cpu"))
    run.play()
    for peer in run.peers.values():
        assert peer.own.best_at == peer.own.rounds > 0


def test_a_loan_has_no_edge_of_a_person() -> None:
    graph = named(SITES["b"], prefixes=PERSONS["prefixes"])
    assert graph.persons is not None
    method = FKGE(virtual=8, edges="all")
    everyone = torch.arange(graph.n_entities)
    some = torch.from_numpy(np.flatnonzero(~graph.persons)[:5])
    for taken, aligned in ((some, some), (everyone, everyone)):
        open_loan = lent(graph, taken, aligned, method, np.random.default_rng(0))
        loan = lent(
            graph, taken, aligned, method, np.random.default_rng(0), np.flatnonzero(graph.persons).tolist()
        )
        own = np.concatenate((taken.numpy(), loan.entities.numpy()))
        assert len(loan.edges)
        assert not graph.persons[own[loan.edges[:, ::2].numpy()]].any()
        own = np.concatenate((taken.numpy(), open_loan.entities.numpy()))
        assert graph.persons[own[open_loan.edges[:, ::2].numpy()]].any(), "without it, there are some"


# Attacks


def test_an_attack_on_a_run_that_protects_persons_pools_what_is_said_about_each() -> None:
    owner = np.array([3, 1, 3, 1, 1])
    found = pooled({"score": np.array([1.0, 2.0, 3.0, 4.0, 6.0])}, owner)
    assert found["score"].tolist() == [4.0, 2.0]


def test_pooled_triples_tell_more_than_single_ones(tmp_path: Path) -> None:
    """Tables that remember every training triple a little: pooled, that is seen better."""
    random = np.random.default_rng(0)
    rows = [(f"p{i}", "r", f"x{k}") for i in range(60) for k in random.choice(40, 12, replace=False)]
    rows = [rows[i] for i in random.permutation(len(rows))]
    graph = graph_from_names(rows[:480], rows[480:600], rows[600:])
    options = {"model": {"name": "transe", "dim": 4}, "rounds": 6, "trainer": {"lr": 0.03}}
    run = federated(tmp_path, {"a": graph}, **options)
    run.play()
    tables = {"a": run.stack_of["a"].sites["a"].tables}
    found = {}
    for unit in ("triple", "entity"):
        one = experiment(persons={"prefixes": ["p"]}, privacy={"mode": "u-only", "unit": unit})
        sources = Sources.of(one, {"a": graph})
        order = Part(
            sources.named["a"], *(np.argsort(np.array(list(n))) for n in (graph.entities, graph.relations))
        )
        own = {"a": order.of(tables["a"])} if unit == "entity" else tables
        attack = Membership(sample=1000)
        rows_found = attack.run([Target("x", one, sources, sources.named, own, {"a": (1.0, 1e-4)})])
        found[unit] = next(row for row in rows_found if row["signal"] == "calibrated")
        assert ("allowed" in found[unit]) == (unit == "triple")
        assert ("person" in attack.words(rows_found)) == (unit == "entity")
        assert attack.shown(found[unit]).get("unit") == ("person" if unit == "entity" else None)
    assert found["entity"]["members"] <= 60 < found["triple"]["members"]
    assert 0.5 < found["triple"]["auc"] < found["entity"]["auc"]
    of_few = found["entity"] | {"auc_low": 0.45, "auc_high": 0.7}
    assert "do not tell it from guessing" in Membership().words([of_few])
    assert "something is seen" in Membership().words([of_few | {"auc_low": 0.51}])
    below = of_few | {"auc": 0.03, "auc_low": 0.01, "auc_high": 0.05}
    assert "differ in kind" in Membership().words([below])


def test_a_run_is_compared_with_one_that_protects_persons_by_persons() -> None:
    graph = clinic()
    persons = {"persons": {"prefixes": ["patient/"]}, "privacy": {"mode": "u-only", "unit": "entity"}}
    ones = [experiment(), experiment(**persons)]
    targets = []
    for one in ones:
        sources = Sources.of(one, {"a": graph})
        own = sources.named["a"]
        sizes = torch.arange(own.n_entities), torch.arange(own.n_relations)
        tables = {"a": Tables.create(one.model, *sizes, 0)}
        targets.append(Target("x", one, sources, sources.named, tables, {}))
    assert targets[0].graph("a").persons is None
    plain, protected = pair(*targets)
    for one in (plain, protected):
        assert one.graph("a").persons is not None
        assert one.graph("a").confidential is not None
