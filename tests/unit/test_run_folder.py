"""A run's folder: made once, resumed by the same experiment alone, and never holding half a file."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedkge.config import read_toml
from fedkge.errors import ConfigError, DataError
from fedkge.models import MODELS
from fedkge.nodes.result import save_tables
from fedkge.nodes.store import write_whole
from fedkge.runs.experiment import Data, Evaluate, Experiment
from fedkge.runs.folder import RunFolder
from fedkge.training import Trainer
from small_graphs import first_tables, random_graph

EXPERIMENT = Experiment(
    model=MODELS["transr"](dim=4),
    data=Data(path=Path("some/where"), ratio="8:1:1"),
    seed=3,
    trainer=Trainer(lr=0.01),
)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_configuration_is_complete_and_reads_back(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", EXPERIMENT, resume=False)
    assert RunFolder.open(tmp_path / "run").experiment() == EXPERIMENT
    written = read_toml(folder.path / "config.toml")
    assert written["model"] == {"name": "transr", "dim": 4, "margin": 1.0, "epsilon": 2.0, "norm": 2}
    assert written["trainer"]["negatives"] == 256
    usual = {"every": 5, "patience": 3, "rule": "patience", "sides": "both", "keep": "together", "sure": 0.0}
    assert written["evaluate"] == usual
    assert written["data"] == {
        "path": "some/where",
        "ratio": "8:1:1",
        "strict": False,
        "drop_leaks": False,
        "held_out": "all",
    }


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, EXPERIMENT, resume=False)
    with pytest.raises(ConfigError, match=r"holds a run already; choose another folder or give --resume$"):
        RunFolder.create(tmp_path, EXPERIMENT, resume=False)
    assert RunFolder.create(tmp_path, EXPERIMENT, resume=True).path == tmp_path


def test_only_the_same_experiment_resumes(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, EXPERIMENT, resume=False)
    before = (tmp_path / "config.toml").read_bytes()
    for other in (replace(EXPERIMENT, seed=4), replace(EXPERIMENT, trainer=Trainer(lr=0.02))):
        with pytest.raises(ConfigError, match=r"config\.toml: another experiment; .* with the same options$"):
            RunFolder.create(tmp_path, other, resume=True)
    assert (tmp_path / "config.toml").read_bytes() == before


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run to resume$"):
        RunFolder.create(tmp_path / "run", EXPERIMENT, resume=True)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file: cannot be written: "):
        RunFolder.create(tmp_path / "file", EXPERIMENT, resume=False)


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not a run folder; expected one with config\.toml"):
        RunFolder.open(tmp_path)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_bytes(b"old")
    with pytest.raises(
        DataError, match=r"summary\.json: cannot be written: No space left on device; what was .* is kept$"
    ):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"summary.json"}


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_leaves_no_new_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No space left"):
        write_whole(tmp_path / "new.json", b"new")
    assert names(tmp_path) == set()
    with pytest.raises(DataError, match="No space left"):
        RunFolder.create(tmp_path / "run", EXPERIMENT, resume=False)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_write_whole_replaces(tmp_path: Path) -> None:
    for content in (b"first", b"second, longer", b""):
        write_whole(tmp_path / "deep" / "file", content)
        assert (tmp_path / "deep" / "file").read_bytes() == content
    assert names(tmp_path) == {"deep", "file"}


def test_tables_of_sites(tmp_path: Path) -> None:
    folder, graph = RunFolder.create(tmp_path, EXPERIMENT, resume=False), random_graph(0, 6, 2, 9)
    with pytest.raises(DataError, match=r"no tables of a site named 'a' \(known: none; has the run ended"):
        folder.load_site("a")
    tables = first_tables(EXPERIMENT.model, graph)
    save_tables(tables, graph, tmp_path / "sites" / "hospital")
    found, entities, relations = folder.load_site("hospital")
    assert torch.equal(found.entities, tables.entities)
    assert torch.equal(found.relations, tables.relations)
    assert (found.model, entities, relations) == (EXPERIMENT.model, graph.entities, graph.relations)
    with pytest.raises(DataError, match=r"site named 'hopsital'; did you mean 'hospital'\?"):
        folder.load_site("hopsital")


def test_tables_that_cannot_be_written(tmp_path: Path) -> None:
    graph = random_graph(0, 6, 2, 9)
    (tmp_path / "sites").touch()
    with pytest.raises(DataError, match=r"sites/a: cannot be written: .*; mend it and give --resume$"):
        save_tables(first_tables(EXPERIMENT.model, graph), graph, tmp_path / "sites" / "a")
    (tmp_path / "sites").unlink()
    (tmp_path / "sites" / "a" / "entities.safetensors").mkdir(parents=True)
    with pytest.raises(DataError, match=r"sites/a: cannot be written: "):
        save_tables(first_tables(EXPERIMENT.model, graph), graph, tmp_path / "sites" / "a")


def test_a_folder_without_tables_is_no_site(tmp_path: Path) -> None:
    """A node's folder is there from the start; its tables are not."""
    folder = RunFolder.create(tmp_path, EXPERIMENT, resume=False)
    (tmp_path / "sites" / "a" / "checkpoints").mkdir(parents=True)
    assert folder.sites() == []
    graph = random_graph(0, 6, 2, 9)
    save_tables(first_tables(EXPERIMENT.model, graph), graph, tmp_path / "sites" / "a")
    assert folder.sites() == ["a"]
    with pytest.raises(DataError, match=r"no tables named 'checkpoints' \(beside .*: none\)"):
        folder.load_site("a", "checkpoints")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": "x"}', '{"run": "x", "sites": 3}'])
def test_a_run_that_does_not_know_itself(tmp_path: Path, content: str) -> None:
    folder = RunFolder.create(tmp_path, EXPERIMENT, resume=False)
    name = folder.begin({"a": "1"})
    assert folder.begin({"a": "1"}) == name, "it is the same when it goes on"
    with pytest.raises(DataError, match="site 'a' has other triples or marks"):
        folder.begin({"a": "2"})
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(DataError, match=r"run\.json: cannot be read .*; restore the file, or run anew"):
        folder.begin({"a": "1"})


@pytest.mark.parametrize("there", [False, True])
def test_a_new_run_that_is_refused_takes_the_folders_of_its_nodes_with_it(
    tmp_path: Path, there: bool
) -> None:
    path = tmp_path / "run"
    if there:
        write_whole(path / "sites" / "mine.txt", b"")
    folder = RunFolder.create(path, EXPERIMENT, resume=False)

    def refused() -> None:
        with folder.unless_refused():
            folder.journal.write("start")
            write_whole(folder.home("hub") / "config.toml", b"")
            raise DataError("no")

    with pytest.raises(DataError, match="no"):
        refused()
    assert names(tmp_path) == ({"run", "sites", "mine.txt"} if there else set())


def test_no_summary_yet(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, EXPERIMENT, resume=False)
    with pytest.raises(DataError, match=r"summary\.json: no such file; has the run ended\?"):
        folder.summary()
    folder.write_summary({"method": "single"})
    assert folder.summary() == {"method": "single"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model": None}, r"^model: expected a table, as in model = \{ name = \.\.\. \}$"),
        ({"data": "atlas"}, r"^data: expected a table"),
        ({"data": {}}, r"^data\.name, path: expected one of the two$"),
        ({"data": {"name": "x", "path": "y"}}, r"^data\.name, path: expected one of the two$"),
        ({"rounds": 0}, r"^rounds: expected at least 1, got 0$"),
        ({"evaluate": {"every": 0}}, r"^evaluate\.every, patience: expected >= 1 and >= 0, got 0, 3$"),
        ({"evaluate": {"rule": "drop"}}, r"^evaluate\.rule: .*got 'drop'; did you mean 'drops'\?$"),
        (
            {"method": {"name": "singel"}},
            r"^method\.name: no method is named 'singel'; did you mean 'single'\?",
        ),
        ({"trainer": 3}, r"^trainer: expected Trainer, got 3$"),
        ({"modle": {}}, r"^modle: no such option; did you mean 'model'\?"),
        ({"model": {"name": "trasne"}}, r"^model\.name: no model is named 'trasne'; did you mean 'transe'\?"),
        ({"model": {"dim": 3}}, r"^model\.name: which model\? one of "),
        ({"model": {"name": "transe", "margin": float("nan")}}, r"^model\.margin, epsilon: .*got nan, 2\.0$"),
    ],
)
def test_bad_experiments(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.parse({"model": {"name": "transe"}, "data": {"name": "atlas"}, **config})


def test_evaluate_options() -> None:
    with pytest.raises(ConfigError, match=r"got 5, -1$"):
        Evaluate(patience=-1)


def test_options_may_have_names_of_earlier_versions(tmp_path: Path) -> None:
    plain = {"model": {"name": "transe"}, "data": {"name": "atlas"}}
    now = Experiment.parse(
        {**plain, "method": {"name": "fedlu", "measure_hub": False}, "marks": {"triples": "some.tsv"}}
    )
    folder = RunFolder.create(tmp_path / "run", now, resume=False)
    config = tmp_path / "run" / "config.toml"
    text = config.read_text(encoding="utf-8")
    assert "measure_hub = false\n" in text
    old = text.replace("measure_hub", "aggregate").replace('triples = "some', 'statements = "some')
    assert old.count("aggregate = false") == old.count("statements =") == 1
    config.write_text(old, encoding="utf-8")
    assert folder.experiment() == now
    assert RunFolder.create(tmp_path / "run", now, resume=True).path == folder.path


@pytest.mark.parametrize("file", ["checkpoints/federation.safetensors", "ledger.jsonl"])
def test_a_run_of_an_earlier_version_does_not_go_on(tmp_path: Path, file: str) -> None:
    """Its one ledger would not be asked any more: a budget could be passed."""
    RunFolder.create(tmp_path / "run", EXPERIMENT, resume=False)
    (tmp_path / "run" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / file).touch()
    with pytest.raises(ConfigError, match=r"run: a run of an earlier version of fedkge, .* run anew in"):
        RunFolder.create(tmp_path / "run", EXPERIMENT, resume=True)


def test_a_run_of_before_an_option_was_there_goes_on(tmp_path: Path) -> None:
    """Its configuration has not the option: it had what is now its usual value."""
    RunFolder.create(tmp_path / "run", EXPERIMENT, resume=False)
    config = tmp_path / "run" / "config.toml"
    lines = config.read_text(encoding="utf-8").splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith("keep")), encoding="utf-8")
    assert "keep" not in config.read_text(encoding="utf-8")
    RunFolder.create(tmp_path / "run", EXPERIMENT, resume=True)
    with pytest.raises(ConfigError, match="another experiment"):
        RunFolder.create(tmp_path / "run", replace(EXPERIMENT, evaluate=Evaluate(keep="each")), resume=True)
