"""`fedkge data` as a user runs it: real processes, real files, exit codes and what is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from commands import printed
from fedkge.cli.main import app
from fedkge.graphs.files import read_federation, read_graph


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDKGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    return tmp_path


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    line = [sys.executable, "-c", "from fedkge.cli.main import main; main()", "data", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def answer(*arguments: object) -> list[dict]:
    """What the command prints as JSON; it runs in this process, which is ten times faster."""
    done = CliRunner().invoke(app, ["data", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return printed(done.stdout)


def refused(*arguments: object) -> str:
    """What the command says when it fails with exit code 2, printing no result and changing nothing."""
    before = snapshot(Path())
    done = CliRunner().invoke(app, ["data", *map(str, arguments)])
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert snapshot(Path()) == before
    return done.stderr


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph of 300 triples in one file."""
    random = np.random.default_rng(0)
    rows = sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in random.integers(0, [40, 6, 40], (310, 3))})[
        :300
    ]
    path = tmp_path / "graph.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def rows(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


def test_partition_then_stats(graph, tmp_path):
    sizes = answer("partition", graph, "fed", "--by", "triple", "--sites", 3, "--seed", 5)
    assert [row["site"] for row in sizes] == ["0", "1", "2"]
    assert [row["train"] + row["valid"] + row["test"] for row in sizes] == [100] * 3
    written = [path for split in ("train", "valid", "test") for path in tmp_path.glob(f"fed/*/{split}.tsv")]
    assert sorted(line for path in written for line in rows(path)) == rows(graph)

    (found,) = answer("stats", "fed", "--strict")  # strict: train knows every name
    assert [site["entities"] for site in found["sites"]] == [row["entities"] for row in sizes]
    assert found["relations"] == 6
    overlap = np.array(found["entity_overlap"])
    assert found["mean_shared_entities_per_pair"] == pytest.approx(overlap[np.triu_indices(3, 1)].mean())
    assert np.array(found["entity_overlap"]).diagonal().tolist() == [row["entities"] for row in sizes]

    done = process("stats", "fed")
    assert done.returncode == 0
    assert "shared_by_two" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("by", ["relation", "cluster"])
def test_partition_by_relation(graph, tmp_path, by):
    answer("partition", graph, "fed", "--by", by, "--sites", 2, "--ratio", "90:5:5")
    federation = read_federation(tmp_path / "fed")
    relations = sorted(name for part in federation.values() for name in part.relations)
    assert relations == ["r0", "r1", "r2", "r3", "r4", "r5"]


def test_partition_in_halves_keeping_a_split(graph, tmp_path):
    answer("split", graph, "whole")
    sizes = answer("partition", "whole", "ab", "--by", "half", "--keep-split")
    assert [row["site"] for row in sizes] == ["A", "B"]
    for split in ("train", "valid", "test"):
        halves = [line for site in "AB" for line in rows(tmp_path / "ab" / site / f"{split}.tsv")]
        assert sorted(halves) == rows(tmp_path / "whole" / f"{split}.tsv")


def test_the_same_seed_writes_the_same_bytes(graph, tmp_path):
    for out, seed in (("one", 1), ("two", 1), ("three", 2)):
        answer("split", graph, out, "--ratio", "8:1:1", "--seed", seed, "--compress")
    one, two, three = ((tmp_path / out / "test.tsv.gz").read_bytes() for out in ("one", "two", "three"))
    assert one == two
    assert one != three


def test_convert_there_and_back(graph, tmp_path):
    answer("convert", graph, "rdf", "--format", "nt", "--compress")
    assert [path.name for path in (tmp_path / "rdf").iterdir()] == ["train.nt.gz"]
    answer("convert", "rdf", "back")
    assert rows(tmp_path / "back" / "train.tsv") == rows(graph)


def test_prune(graph, tmp_path):
    (size,) = answer("prune", graph, "dense", "--min-degree", 10)
    left = read_graph(tmp_path / "dense")
    assert size["dropped_entities"] == 40 - left.n_entities == 6
    assert size["dropped_triples"] == 300 - len(left.train)
    assert min(np.bincount(np.concatenate([np.unique(row[[0, 2]]) for row in left.train]))) >= 10


def test_mark_by_relations_triples_and_share(graph, tmp_path):
    (tmp_path / "private.txt").write_text("r1\nr4\n")
    (size,) = answer("mark", graph, "one", "--relations", "private.txt")
    assert size["confidential"] == sum("\tr1\t" in line or "\tr4\t" in line for line in rows(graph))
    marked = read_graph(tmp_path / "one")
    assert {marked.relations[r] for r in marked.train[marked.confidential, 1].tolist()} == {"r1", "r4"}

    (tmp_path / "list.tsv").write_text("\n".join(rows(graph)[:7]) + "\n")
    (size,) = answer("mark", graph, "two", "--triples", "list.tsv")
    assert size["confidential"] == 7
    (size,) = answer("mark", graph, "three", "--share", 0.5)
    assert size["confidential"] == 150


def test_forget(graph, tmp_path):
    answer("partition", graph, "fed", "--by", "triple", "--sites", 2)
    sizes = answer("forget", "fed", "rest", "--share", 0.05)
    for row in sizes:
        site = tmp_path / "rest" / row["site"]
        assert row["forgotten"] == len(rows(site / "forget.tsv")) == 6
        whole = rows(tmp_path / "fed" / row["site"] / "train.tsv")
        assert sorted(rows(site / "forget.tsv") + rows(site / "train.tsv")) == whole
    assert list(read_federation(tmp_path / "rest", strict=True)) == ["0", "1"]


def test_marks_are_forgotten_with_their_triples_and_lost_aloud(graph, tmp_path):
    answer("mark", graph, "marked", "--share", 1)
    answer("forget", "marked", "rest", "--share", 0.05)
    assert sorted(rows(tmp_path / "rest/forget.tsv") + rows(tmp_path / "rest/train.tsv")) == rows(
        tmp_path / "marked/train.tsv"
    )
    done = CliRunner().invoke(app, ["data", "split", "marked", "divided"])
    assert "warning: 60 of 300 confidential triples were moved to valid or test" in done.stderr
    message = refused("convert", "marked", "new/rdf", "--format", "nt")
    assert message.startswith("error: new/rdf: N-Triples cannot mark 300 confidential")


def test_an_output_in_use_is_replaced_only_on_request(graph, tmp_path):
    answer("convert", graph, "out")
    assert "out: the folder is not empty" in refused("convert", graph, "out")
    answer("convert", graph, "out", "--format", "nt", "--overwrite")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.nt"]
    answer("split", "out", "out", "--overwrite")  # onto itself
    assert len(read_graph(tmp_path / "out").train) == 240

    (tmp_path / "out" / "thesis.doc").write_text("precious")
    message = refused("convert", graph, "out", "--overwrite")
    assert "thesis.doc: not a file that this command writes" in message
    assert "found a file" in refused("convert", graph, graph, "--overwrite")


def test_a_failure_keeps_what_was_to_be_replaced(graph, tmp_path):
    answer("convert", graph, "out")
    (tmp_path / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    message = refused("convert", "bad.tsv", "out", "--overwrite")
    assert "bad.tsv:2: expected 3" in message


def test_bad_input(graph, tmp_path):
    deal = ("partition", graph, "new/out", "--by", "relation")
    assert "sites: 7 sites for a graph of 6 relations" in refused(*deal, "--sites", 7)
    assert "--sites: how many sites?" in refused(*deal)
    assert "ratio: expected numbers as in 8:1:1, got '8-1-1'" in refused(
        *deal, "--sites", 2, "--ratio", "8-1-1"
    )
    assert "not both" in refused(*deal, "--sites", 2, "--ratio", "8:1:1", "--keep-split")
    assert "two halves are two sites, not 3" in refused(
        "partition", graph, "out", "--by", "half", "--sites", 3
    )
    assert "expected one of --relations, --triples, --share" in refused("mark", graph, "out")
    assert "share: expected above 0" in refused("mark", graph, "out", "--share", 2)
    (tmp_path / "names.txt").write_text("r1\nr99\n")
    assert "no relation is named 'r99'" in refused("mark", graph, "out", "--relations", "names.txt")
    assert "min_degree 500 leaves nothing" in refused("prune", graph, "out", "--min-degree", 500)


def test_failures_of_a_real_process(tmp_path):
    (tmp_path / "bad.tsv").write_text("a\tr\tb\na\tr\n")
    for arguments, expected in (
        (("partition", "bad.tsv", "out", "--by", "triple", "--sites", 2), "error: bad.tsv:2: expected 3"),
        (
            ("stats", "fb15k-273"),
            "error: fb15k-273: no such file or folder",
        ),
        (("stats", "fb15k-237-C3"), "set FEDKGE_DATA"),
    ):
        done = process(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tsv"]


def test_a_name_instead_of_a_path(tmp_path, monkeypatch):
    own = tmp_path / "own" / "umls"
    own.mkdir(parents=True)
    (own / "train.tsv").write_text("a\tr\tb\n")
    monkeypatch.setenv("FEDKGE_DATA", str(own.parent))
    assert answer("stats", "UMLS")[0]["sites"][0]["train"] == 1


def test_a_warning_goes_to_standard_error_and_strict_refuses(tmp_path):
    folder = tmp_path / "g"
    folder.mkdir()
    (folder / "train.tsv").write_text("a\tr\tb\n")
    (folder / "test.tsv").write_text("a\tr\tnew\n")
    done = process("stats", "g", "--json")
    assert printed(done.stdout)
    assert done.stderr.startswith("warning: ")
    assert "'new'" in refused("stats", "g", "--strict")


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom fedkge.cli.main import app\ntry: app(['data', '--help'])\n"
        "finally: assert not {'numpy', 'torch', 'pyarrow', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "partition" in done.stdout
