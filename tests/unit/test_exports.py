"""Embeddings out and back, and PyKEEN models that score the same."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError, DataError
from fedkge.exports import load_embeddings, pykeen, save_embeddings, to_pykeen
from fedkge.exports.pykeen_files import save_pykeen
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.kernels import Similarity
from fedkge.models import MODELS, Tables

NAMES = ["Zürich", 'a "b"', "c d", "é\u2028", "x,y", "东京"]


def make(model: str, **options: Any) -> tuple[Tables, Graph]:
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers(0, [6, 3, 6], (40, 3)), axis=0)
    graph = Graph(Names(NAMES), Names(["r", "s", "t"], Axis.RELATION), triples)
    chosen = MODELS[model](dim=5, **options)
    tables = Tables.create(chosen, torch.arange(6), torch.arange(3), 0)
    tables.entities.mul_(3)  # beyond the unit ball, where projections are shortened
    chosen.observe(tables.relations, torch.from_numpy(triples))
    return tables, graph


@pytest.mark.parametrize("model", list(MODELS))
def test_safetensors_come_back_whole(model: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    tables, graph = make(model, margin=3.5)
    written = save_embeddings(tables, graph, tmp_path / "new", "safetensors")
    assert sorted(path.name for path in written) == sorted(path.name for path in (tmp_path / "new").iterdir())
    again, entities, relations = load_embeddings(tmp_path / "new")
    assert again.model == tables.model
    assert torch.equal(again.entities, tables.entities)
    assert torch.equal(again.relations, tables.relations)
    assert (entities, relations) == (graph.entities, graph.relations)
    with pytest.raises(DataError, match="no relation is named"):
        relations.id("q")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tsv_numbers_read_back_exactly(dtype: torch.dtype, tmp_path: Path) -> None:
    tables, graph = make("transd")
    tables = tables.to("cpu", dtype)
    tables.entities[0, :4] = torch.tensor([1e-40, 3e38, -0.0, 1 / 3], dtype=dtype)
    save_embeddings(tables, graph, tmp_path, "tsv")
    for axis, file, names in (
        (Axis.ENTITY, "entities", graph.entities),
        (Axis.RELATION, "relations", graph.relations),
    ):
        lines = (tmp_path / f"{file}.vectors.tsv").read_bytes().decode().split("\n")[:-1]
        fields = [line.split("\t") for line in lines]
        assert [f[0] for f in fields] == list(names)
        numbers = torch.tensor([[float(x) for x in f[1:]] for f in fields], dtype=torch.float64).to(dtype)
        assert torch.equal(numbers, tables.table(axis))


@pytest.mark.parametrize("model", ["transe", "transd", "rotate", "rescal"])
def test_parquet_has_a_column_per_block(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("fedkge.exports.files.AT_A_TIME", 4)  # more than one batch
    tables, graph = make(model)
    save_embeddings(tables, graph, tmp_path, "parquet")
    for axis, file, names in (
        (Axis.ENTITY, "entities", graph.entities),
        (Axis.RELATION, "relations", graph.relations),
    ):
        table = pq.read_table(tmp_path / f"{file}.parquet")
        assert table.column_names == ["name", *tables.model.blocks[axis]]
        assert table["name"].to_pylist() == list(names)
        for block in tables.model.blocks[axis]:
            assert str(table.schema.field(block).type) in ("list<element: float>", "list<item: float>")
            rows = torch.tensor(table[block].to_pylist(), dtype=torch.float32)
            assert torch.equal(rows, tables.model.block(tables.table(axis), axis, block))


def test_bad_requests_say_what_is_wrong(tmp_path: Path) -> None:
    tables, graph = make("transe")
    with pytest.raises(ConfigError, match=r"format: expected one of .*did you mean 'parquet'"):
        save_embeddings(tables, graph, tmp_path, "parqet")
    strange = Graph(Names([*NAMES[:5], "tab\there"]), graph.relations, graph.train)
    with pytest.raises(DataError, match=r"entity 'tab\\there': a name with a tab"):
        save_embeddings(tables, strange, tmp_path, "tsv")
    fewer = Graph(Names(NAMES[:5]), graph.relations, graph.train[:0])
    with pytest.raises(DataError, match="5 entity names for 6 rows"):
        save_embeddings(tables, fewer, tmp_path, "tsv")
    assert not list(tmp_path.iterdir())


def test_broken_folders_say_which_file(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    tables, graph = make("transe")
    with pytest.raises(DataError, match=r"entities\.safetensors: no such file"):
        load_embeddings(tmp_path)
    save_embeddings(tables, graph, tmp_path, "safetensors")
    names = tmp_path / "entities.tsv"
    names.write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"entities\.tsv: 2 names, expected 6"):
        load_embeddings(tmp_path)
    names.write_text("a\n" * 6, encoding="utf-8")
    with pytest.raises(DataError, match="stands twice"):
        load_embeddings(tmp_path)
    names.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="not UTF-8"):
        load_embeddings(tmp_path)
    names.unlink()
    with pytest.raises(DataError, match=r"entities\.tsv: no such file"):
        load_embeddings(tmp_path)
    save_embeddings(make("distmult")[0], graph, tmp_path / "other", "safetensors")
    (tmp_path / "other" / "entities.safetensors").replace(tmp_path / "entities.safetensors")
    with pytest.raises(DataError, match="files of two models"):
        load_embeddings(tmp_path)
    safetensors.save_file({"rows": tables.entities}, tmp_path / "entities.safetensors", {"model": "[]"})
    with pytest.raises(DataError, match=r"entities\.safetensors: expected a model's options, found \[\]"):
        load_embeddings(tmp_path)
    (tmp_path / "entities.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"entities\.safetensors: expected a tensor 'rows'"):
        load_embeddings(tmp_path)


CASES = [(model, {}) for model in MODELS] + [
    *(
        (model, {"norm": norm})
        for model in ("transe", "transh", "transr", "transd", "transm")
        for norm in (1, 2)
    ),
    ("transr", {"relation_dim": 3}),
]


@pytest.mark.parametrize(("model", "options"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_pykeen_models_score_the_same_less_the_margin(model: str, options: dict[str, Any]) -> None:
    pytest.importorskip("pykeen")
    tables, graph = make(model, **options)
    exported = to_pykeen(tables, graph)
    triples = torch.cartesian_prod(torch.arange(6), torch.arange(3), torch.arange(6))
    margin = 0.0 if tables.model.similarity is Similarity.DOT else tables.model.margin  # type: ignore[attr-defined]
    with torch.no_grad():
        theirs = exported.score_hrt(triples)[:, 0]
        by_tail = exported.score_t(triples[::6, :2]).flatten()
    torch.testing.assert_close(theirs, tables.score(triples) - margin, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(by_tail, theirs, rtol=1e-5, atol=2e-5)
    assert exported.num_entities == 6


@pytest.mark.filterwarnings("ignore")
def test_pykeen_models_are_copies_and_can_be_stored() -> None:
    pytest.importorskip("pykeen")
    tables, graph = make("rotate")
    exported = to_pykeen(tables, graph)
    triple = torch.tensor([[0, 1, 2]])
    before = exported.score_hrt(triple).item()
    tables.entities.zero_()
    assert exported.score_hrt(triple).item() == before
    stored = pickle.loads(pickle.dumps(exported))
    assert stored.score_hrt(triple).item() == before


def test_a_model_without_a_conversion_names_those_that_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, graph = make("transe")
    monkeypatch.setattr(pykeen, "CONVERSIONS", {"rotate": None, "complex": None})
    with pytest.raises(ConfigError, match=r"transe has no like in PyKEEN \(supported: complex, rotate\)"):
        to_pykeen(tables, graph)


def test_a_graph_without_training_triples_makes_no_pykeen_model() -> None:
    pytest.importorskip("pykeen")
    tables, graph = make("transe")
    with pytest.raises(DataError, match="train: no triples"):
        to_pykeen(tables, Graph(graph.entities, graph.relations, graph.train[:0], test=graph.train))


@pytest.mark.filterwarnings("ignore")
def test_confidential_triples_do_not_go_to_pykeen(tmp_path: Path) -> None:
    factories = pytest.importorskip("pykeen.triples")
    tables, graph = make("transe")
    marks = np.arange(len(graph.train)) % 3 == 0
    save_pykeen(tables, replace(graph, confidential=marks), tmp_path)
    kept = factories.TriplesFactory.from_path_binary(tmp_path / "training_triples")
    assert sorted(kept.mapped_triples.tolist()) == sorted(graph.train[~marks].tolist())
    with pytest.raises(DataError, match="all triples are confidential"):
        save_pykeen(tables, replace(graph, confidential=np.ones_like(marks)), tmp_path)
