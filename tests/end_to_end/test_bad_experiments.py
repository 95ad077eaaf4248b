"""Experiments that cannot be right: refused in one line that names the place, before anything is made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commands import CONFIG, answer, process, refused
from fedkge.cli.output import command

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here")


def test_data_that_is_not_there_is_named_in_full(tmp_path: Path) -> None:
    said = refused("run", "tiny.toml", "--out", tmp_path / "run", "--set", "data.path=nowhere")
    assert said == f"{Path.cwd() / 'nowhere'}: no such file or folder"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["trainer.batchsize=3"], "--set trainer.batchsize: no such option; did you mean 'batch_size'?"),
        (["trainer.lr=fast"], "--set trainer.lr: expected float, got 'fast'"),
        (["rounds=1.5"], "--set rounds: expected int, got 1.5"),
        (["model.name=trnse"], "--set model.name: no model is named 'trnse'; did you mean 'transe'?"),
        (["model.norm=3"], "--set model.norm: expected one of 1, 2, got 3"),
        ([f"trainer.chunk={10**18}"], "--set trainer.chunk: expected at most 2,147,483,647, got 1,000,000"),
        ([f"trainer.epochs={10**18}"], "--set trainer.epochs: expected at most 1,000,000, got 1,000,000"),
        (["trainer.loss=margins"], "--set trainer.loss: expected one of"),
        (["rounds"], "--set rounds: expected KEY=VALUE, as in model.dim=64"),
        (["rounds.x=3"], "--set rounds.x=3: rounds is not a table"),
        (["data.name=atlas"], "tiny.toml with --set data.name=atlas: data.name, path: expected one"),
        (["data.ratio=8:x"], "ratio: expected numbers as in 8:1:1, got '8:x'"),
        (["method.name=fedpro"], "--set method.name: no method is named 'fedpro'; did you mean 'fedprox'?"),
        (["method.name=single", "method.mu=1"], "--set method.mu: no such option (known: restart)"),
        (["method.name=fedprox", "method.mu=-1"], "--set method.mu: expected at least 0, got -1.0"),
        (["method.name=fedprox", "method.mue=1"], "--set method.mue: no such option; did you mean 'mu'?"),
        (["codec.name=int9"], "--set codec.name: no codec is named 'int9'; did you mean 'int8'?"),
        (["participation.fraction=2"], "--set participation.fraction: expected a number above 0 and at most"),
        (["model.name=rotate", "model.margin=wide"], "--set model.margin: expected float, got 'wide'"),
        (["seed=2026-01-02"], "--set seed: expected int, got datetime.date(2026, 1, 2)"),
    ],
)
def test_bad_options(assignments: list[str], message: str, tmp_path: Path) -> None:
    given = [part for assignment in assignments for part in ("--set", assignment)]
    said = refused("run", "tiny.toml", "--out", tmp_path / "run", *given)
    assert said.startswith(message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dim", [10**12, 2**62])
def test_more_than_memory_has_room_for(dim: int, tmp_path: Path) -> None:
    said = refused("run", "tiny.toml", "--out", tmp_path / "run", "--set", f"model.dim={dim}")
    assert said.startswith("not enough memory for these options: ")


def test_other_errors_are_not_taken_for_it() -> None:
    with pytest.raises(RuntimeError, match="mistake"), command():
        raise RuntimeError("a mistake of this program")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ": no such file"),
        ("rounds = = 3", ": Invalid value (at line 1, column 10)"),
        ("rounds = 3", "bad.toml: data: expected a table"),
        (
            f"{CONFIG}method = {{ name = 'fedprox', mue = 3 }}",
            "bad.toml: method.mue: no such option; did you mean",
        ),
        (f"{CONFIG}rouns = 3", "bad.toml: rouns: no such option; did you mean 'rounds'?"),
    ],
)
def test_bad_files(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_text(content)
    assert message in refused("run", path, "--out", tmp_path / "run")
    if content is not None:  # it is the file's fault also where other options are set
        assert message in refused("run", path, "--out", tmp_path / "run", "--set", "seed=1")


def test_an_option_of_the_file_that_another_model_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(CONFIG.replace("margin = 4.0", "norm = 2"))
    said = refused("run", tmp_path / "x.toml", "--set", "model.name=rotate", "--out", tmp_path / "run")
    assert said.startswith(f"{tmp_path / 'x.toml'} with --set model.name=rotate: model.norm: no such option")


def test_devices(tmp_path: Path) -> None:
    import torch

    line = ("run", "tiny.toml", "--out", tmp_path / "run", "--device")
    assert refused(*line, "gpu") == "--device: expected auto, cpu or cuda, got 'gpu'"
    if not torch.cuda.is_available():
        assert refused(*line, "cuda").startswith("--device cuda: this machine has no CUDA device")


def test_a_real_process_fails_in_one_line() -> None:
    found = process("run", "tiny.toml", "--out", "refused", "--set", "model.dmi=3")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: --set model.dmi: no such option; did you mean 'dim'?")
    assert found.stderr.count("\n") == 1
    assert not Path("refused").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written: " in refused("run", "tiny.toml", "--out", tmp_path / "file" / "run")


def test_data_without_valid_and_test(tmp_path: Path) -> None:
    shutil.copytree("federation", tmp_path / "data")
    for site in ("north", "south"):
        for split in ("valid", "test"):
            (tmp_path / "data" / site / f"{split}.tsv").unlink()
    line = ("run", "tiny.toml", "--set", f"data.path={tmp_path / 'data'}", "--set", "rounds=1")
    said = refused(*line, "--out", tmp_path / "run")
    assert said == (
        "site 'north' has no valid triples; name a ratio, as in data.ratio = '8:1:1', "
        "or split the data with `fedkge data split`"
    )
    (summary,) = answer(*line, "--out", tmp_path / "run", "--set", "data.ratio=8:1:1")
    assert all(site["triples"]["test"] >= 10 for site in summary["sites"].values())
    assert answer("evaluate", tmp_path / "run")[0]["count"] > 0
