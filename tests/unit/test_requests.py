"""What is asked to be forgotten: found, refused, taken out, told by keyed digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkge.errors import ConfigError, DataError
from fedkge.graphs.graph import Split
from fedkge.runs.requests import Erasure, Request, digest, digests, read_key
from small_federations import small_federation

FEDERATION = small_federation()


def named(site: str, count: int) -> list[tuple[str, str, str]]:
    graph = FEDERATION[site]
    return [
        (graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.train[:count].tolist()
    ]


def test_triples_leave_the_graph_and_nothing_else_does() -> None:
    erasure = Erasure.of(FEDERATION, [Request("a", named("a", 3))])
    left = erasure.retained
    assert len(left["a"].train) == len(FEDERATION["a"].train) - 3
    assert left["b"] is FEDERATION["b"]
    graph = left["a"]
    there = {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.all().tolist()}
    assert not there & set(named("a", 3))
    assert erasure.named() == {"a": named("a", 3)}


def test_an_entity_takes_all_its_triples_with_it_and_its_name() -> None:
    graph = FEDERATION["a"]
    name = graph.entities[int(graph.train[0, 0])]
    erasure = Erasure.of(FEDERATION, [Request("a", entities=[name])])
    assert name not in erasure.retained["a"].entities
    assert all(name in (h, t) for h, _, t in erasure.named()["a"])
    lesson = erasure.lesson("a")
    assert lesson is not None  # its neighbours' rows have something to forget
    assert erasure.rest("a", erasure.retained["a"]) is None  # and afterwards nobody can be asked


def test_a_relation_takes_all_its_triples_with_it() -> None:
    erasure = Erasure.of(FEDERATION, [Request("b", relations=["b.r1"])])
    assert "b.r1" not in erasure.retained["b"].relations
    assert {r for _, r, _ in erasure.named()["b"]} == {"b.r1"}


def test_what_a_site_does_not_have_is_listed_and_nothing_is_done() -> None:
    asked = [Request("a", [*named("a", 1), ("e0", "a.r0", "nobody")], entities=["ghost"])]
    with pytest.raises(
        DataError, match=r"does not have 2 .*entity 'ghost'; 'e0' 'a.r0' 'nobody'.*--ignore-missing"
    ):
        Erasure.of(FEDERATION, asked)
    erasure = Erasure.of(FEDERATION, asked, ignore_missing=True)
    assert erasure.missing == {"a": 2}
    assert erasure.chosen["a"][Split.TRAIN].sum() == 1


def test_everything_is_refused_and_a_strange_site_too() -> None:
    with pytest.raises(DataError, match=r"forget everything.*--withdraw a"):
        Erasure.of(FEDERATION, [Request("a", relations=list(FEDERATION["a"].relations))])
    with pytest.raises(DataError, match="no site is named 'A'"):
        Erasure.of(FEDERATION, [Request("A", named("a", 1))])
    with pytest.raises(DataError, match="all sites would withdraw"):
        Erasure.of(FEDERATION, [], ["a", "b", "c"])


def test_nothing_is_empty() -> None:
    assert Erasure.of(FEDERATION, []).empty
    assert Erasure.of(FEDERATION, [Request("a")]).empty
    assert not Erasure.of(FEDERATION, [], ["a"]).empty


def test_several_requests_of_a_site_add_up() -> None:
    both = Erasure.of(FEDERATION, [Request("a", named("a", 2)), Request("a", named("a", 3)[1:])])
    assert both.chosen["a"][Split.TRAIN].sum() == 3


@pytest.mark.parametrize("name", ["forget.tsv", "forget.tsv.gz"])
def test_files_may_be_empty(tmp_path: Path, name: str) -> None:
    import gzip

    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith("gz") else b"\n")
    assert Request.read("a", path, "triples") == Request("a")
    with pytest.raises(DataError, match="no such file"):
        Request.read("a", tmp_path / "nothing.tsv", "triples")


def test_digests_need_the_key(tmp_path: Path) -> None:
    key = read_key(tmp_path / "key")
    assert read_key(tmp_path / "key") == key
    assert len(key) == 32
    erasure = Erasure.of(FEDERATION, [Request("a", named("a", 2))], ["c"])
    found = digests(key, erasure)
    assert found["a"] == sorted(digest(key, "a", triple) for triple in named("a", 2))
    assert len(found["c"]) == 1
    assert digests(b"another key, long enough", erasure)["a"] != found["a"]
    (tmp_path / "short").write_bytes(b"short")
    with pytest.raises(ConfigError, match="at least 16"):
        read_key(tmp_path / "short")
