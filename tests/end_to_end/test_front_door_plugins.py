"""The front door, item 2: parts of one's own, from a file or a package, and nobody else's code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedkge.plugins as plugins
from commands import ENVIRONMENT, LINE, answer, fedkge, refused, write_home
from documents import ROOT, blocks
from fedkge.config import read_toml
from fedkge.errors import ConfigError
from fedkge.methods import METHODS
from fedkge.nodes.terms import Terms
from fedkge.runs.network import HubFile, SiteFile

pytest.importorskip("numba")
PAGE = ROOT / "docs" / "own-method.md"
PARTS = '''
"""Parts of one's own."""

from dataclasses import dataclass

import torch

from fedkge.audits.base import ATTACKS, Attack
from fedkge.exchange.codec import CODECS, Float32
from fedkge.exchange.select import SELECTIONS, Full
from fedkge.models import MODELS
from fedkge.nodes.terms import Terms
from fedkge.runs.network import HubFile, SiteFile
from fedkge.models.transe import TransE
from fedkge.training.losses import LOSSES


@MODELS.register("halfe")
@dataclass(frozen=True)
class HalfE(TransE):
    """TransE with scores of half the size."""

    half: float = 0.5  #: what scores are multiplied by


@CODECS.register("plain")
@dataclass(frozen=True)
class Plain(Float32):
    """Rows as they are."""


@SELECTIONS.register("every")
@dataclass(frozen=True)
class Every(Full):
    """All rows."""


@LOSSES.register("softplus")
def softplus(scores, temperature):
    """Softplus of the negatives' mean minus the positive."""
    return torch.nn.functional.softplus(scores[:, 1:].mean(1) - scores[:, 0])


@ATTACKS.register("glance")
@dataclass(frozen=True)
class Glance(Attack):
    """Counts triples."""

    title, caption = "Glance", "How many triples there are."

    def run(self, targets, watch=None):
        return [{"run": one.name, "sites": len(one.tables)} for one in targets]

    def words(self, rows):
        return f"{len(rows)} run."

    def shown(self, row):
        return row
'''


def method_file() -> str:
    """The method of docs/own-method.md, as it stands there."""
    (text,) = (block.text for block in blocks(PAGE) if block.title == "my_methods.py")
    return text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with a plugin, and a run of it by a process of its own, as `me`."""
    home = tmp_path_factory.mktemp("plugins")
    write_home(home)
    (home / "my_methods.py").write_text(method_file())
    text = (home / "tiny.toml").read_text()
    (home / "mine.toml").write_text(
        'plugins = ["my_methods.py"]\n' + text + 'method = { name = "fedavgm", momentum = 0.3 }\n'
    )
    done = as_user("me", "run", "mine.toml", cwd=home)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(autouse=True)
def fresh(no_plugins: None) -> None:
    """As in a new process of a user who has not run any plugin."""


def as_user(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command as a process of somebody who has a state folder of their own."""
    environment = {**ENVIRONMENT, "XDG_STATE_HOME": str(cwd / f"state-of-{name}")}
    return subprocess.run(
        [*LINE, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def as_me(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process of the one who made the run, at home."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state-of-me"))


@pytest.mark.usefixtures("as_me")
def test_2_the_method_of_the_guide_is_a_plugin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume and evaluate load it again; the run stores its name and digest."""
    run = home / "runs" / "mine"
    (stored,) = read_toml(run / "config.toml")["plugins"]
    assert re.fullmatch(r"my_methods\.py sha256:[0-9a-f]{64}", stored)
    shutil.move(home / "my_methods.py", home / "elsewhere.py")
    kept = fedkge("evaluate", "runs/mine")
    shutil.move(home / "elsewhere.py", home / "my_methods.py")
    assert kept.exit_code == 0, kept.output
    assert fedkge("report", "runs/mine").exit_code == 0
    assert "fedavgm" in (run / "report.html").read_text()
    monkeypatch.setattr(plugins, "_running", {})
    monkeypatch.setattr(METHODS, "_classes", {name: METHODS[name] for name in METHODS if name != "fedavgm"})
    again = fedkge("run", "mine.toml", "--resume")
    assert again.exit_code == 0, again.output


def test_2_nodes_as_processes_load_it(home: Path) -> None:
    line = ["run", "mine.toml", "--set", "runtime.name=processes", "--set", "rounds=2", "--out", "runs/apart"]
    found = as_user("me", *line, cwd=home)
    assert found.returncode == 0, found.stderr


def test_2_somebody_elses_run_runs_no_code(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the digest, not by a file in the folder, not by a path in its configuration."""
    monkeypatch.chdir(home)
    run = home / "runs" / "theirs"
    shutil.copytree(home / "runs" / "mine", run)
    harm = run / "my_methods.py"
    harm.write_text(f"open({str(home / 'harmed')!r}, 'w')")
    said = refused("evaluate", run)
    assert re.fullmatch(
        r"plugins: a plugin with the digest [0-9a-f]{12}\.\.\. is needed, and was never used here; if you "
        r"have a copy that you trust, name it with --trust",
        said,
    )
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(
        re.sub(r"^plugins = .*$", 'plugins = ["my_methods.py"]', config, flags=re.M)
    )
    for line in (["evaluate", run], ["run", run / "config.toml", "--out", home / "runs" / "new"]):
        assert "my_methods" not in (said := refused(*line))
        assert said.endswith("plugins: expected a name and the digest of a file, as runs write them")
    assert fedkge("report", run).exit_code == 0
    assert not (home / "harmed").exists()


def test_2_a_kept_file_that_was_changed_is_not_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    stored = plugins.load_file(home / "my_methods.py")
    plugins.load_known([stored])
    (kept,) = (tmp_path / "state" / "fedkge" / "plugins").iterdir()
    kept.write_text("raise SystemExit")
    monkeypatch.setattr(plugins, "_running", {})
    with pytest.raises(ConfigError, match="never used here"):
        plugins.load_known([stored])


def test_2_trust_names_a_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content is as good; other content is said to be other."""
    monkeypatch.chdir(home)
    copy = tmp_path / "copy.py"
    copy.write_text(method_file())
    same = fedkge("evaluate", "runs/mine", "--trust", copy)
    assert same.exit_code == 0, same.output
    assert "another plugin" not in same.stderr
    monkeypatch.setattr(plugins, "_trusted", [])
    monkeypatch.setattr(METHODS, "_classes", {name: METHODS[name] for name in METHODS if name != "fedavgm"})
    copy.write_text(method_file() + "\n# edited\n")
    other = fedkge("evaluate", "runs/mine", "--trust", copy)
    assert other.exit_code == 0, other.output
    assert other.stderr.count("warning: a run was made with another plugin than the trusted one") == 1
    assert (
        refused("explain", "fede", "--trust", "nowhere.py")
        == "plugins: nowhere.py: No such file or directory"
    )


def test_2_explain_and_list_know_it(home: Path) -> None:
    found = fedkge("explain", "fedavgm", "--trust", home / "my_methods.py")
    assert found.exit_code == 0, found.output
    assert "0: the mean, as in FedEP" in found.stdout
    assert 'method = { name = "fedavgm", momentum = 0.5 }' in found.stdout
    assert any(
        row["name"] == "fedavgm" for row in answer("list", "methods", "--trust", home / "my_methods.py")
    )


def test_2_model_codec_selection_loss_and_attack(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    (home / "parts.py").write_text(PARTS)
    chosen = {
        "model.name": "halfe",
        "codec.name": "plain",
        "select.name": "every",
        "trainer.loss": "softplus",
    }
    options = [
        f"--set={key}={value}" for key, value in (chosen | {"method.name": "fedep", "rounds": 2}).items()
    ]
    out = tmp_path / "run"
    found = fedkge("run", "tiny.toml", '--set=plugins=["parts.py"]', *options, "--out", out)
    assert found.exit_code == 0, found.output
    said = answer("attack", out, "--name", "glance", "--trust", "parts.py")
    assert said["words"] == {"glance": "1 run."}
    assert fedkge("predict", out, "--site", "north", "--head", "e1", "--relation", "a").exit_code == 0


def test_2_what_is_wrong_with_a_plugin_is_said(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    wrong = {
        "x = 1\n)": "line 2: unmatched ')'",
        "import fedkge\n\nfedkge.nothing()": "line 3: AttributeError: module 'fedkge' has no attribute",
        method_file().replace(
            '"fedavgm"', '"fedep"'
        ): "fedkge.methods.fedep has a method named 'fedep' already",
        method_file().replace("@dataclass(frozen=True)\n", ""): "FedAvgM is no dataclass; write @dataclass",
    }
    for text, said in wrong.items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(said)):
            plugins.load_file(file)


def test_2_a_run_is_not_resumed_with_an_edited_plugin(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine.toml", "my_methods.py", "runs"):
        (tmp_path / name).symlink_to(home / name)
    text = (tmp_path / "my_methods.py").read_text()
    (tmp_path / "my_methods.py").unlink()
    (tmp_path / "my_methods.py").write_text(f"{text}\n# edited\n")
    monkeypatch.chdir(tmp_path)
    said = refused("run", "mine.toml", "--resume")
    assert "another experiment; a run is resumed with the same plugins, unedited since" in said


def test_2_an_edited_plugin_replaces_itself(tmp_path: Path) -> None:
    file, other = tmp_path / "mine.py", tmp_path / "other.py"
    file.write_text(method_file())
    plugins.load_file(file)
    first = METHODS["fedavgm"]
    plugins.load_file(file)
    assert METHODS["fedavgm"] is first
    file.write_text(method_file().replace("0.5", "0.9"))
    plugins.load_file(file)
    assert METHODS["fedavgm"]().momentum == 0.9  # type: ignore[attr-defined]
    other.write_text(method_file())
    with pytest.raises(ConfigError, match=r"fedkge_plugins\.mine has a method named 'fedavgm' already"):
        plugins.load_file(other)


def test_2_an_installed_package_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point; nothing has to be named."""
    (tmp_path / "momentum.py").write_text(method_file())
    about = tmp_path / "momentum-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: momentum\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedkge.plugins]\nmomentum = momentum\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from fedkge.cli.main import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code, "explain", "fedavgm"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "0: the mean, as in FedEP" in found.stdout
    (tmp_path / "momentum.py").write_text("raise ValueError('no')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_installed", False)
    assert refused("list") == "plugin momentum (momentum): ValueError: no"


def test_2_without_the_plugin_its_name_is_unknown(home: Path) -> None:
    assert "nothing is named 'fedavgm'" in refused("explain", "fedavgm")


def test_2_a_hub_cannot_make_a_site_run_code(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends a digest; a site knows the file only if its own file names it."""
    where = 'folder = "kept"\nauthority = "authority"\nsites = ["north"]\nplugins = ["my_methods.py"]\n'
    parts = 'model = { name = "transe" }\nmethod = { name = "fedavgm" }\n'
    (home / "hub.toml").write_text(where + parts)
    terms = HubFile.read(home / "hub.toml").terms()
    assert terms["plugins"][0].startswith("my_methods.py sha256:")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    monkeypatch.setattr(plugins, "_running", {})
    with pytest.raises(ConfigError, match="never used here"):
        Terms.parse(terms)
    own = 'graph = "federation/north"\nfolder = "n"\nkit = "n.kit"\nkey = "n.key"\n'
    (home / "north.toml").write_text(own + 'plugins = ["my_methods.py"]\n')
    SiteFile.read(home / "north.toml")
    assert Terms.parse(terms).method.momentum == 0.5  # type: ignore[attr-defined]


def test_2_every_command_that_needs_a_plugin_takes_trust(home: Path, tmp_path: Path) -> None:
    """A new run by somebody else's options names the file that it was made with."""
    other = tmp_path / "other.py"
    other.write_text(method_file() + "\n# edited\n")
    config, out = home / "runs" / "mine" / "config.toml", tmp_path / "run"
    assert "name it with --trust" in refused("run", config, "--out", out)
    done = fedkge("run", config, "--out", out, "--set", "rounds=1", "--trust", other)
    assert done.exit_code == 0, done.output
    (stored,) = read_toml(out / "config.toml")["plugins"]
    assert stored == plugins.load_file(other)
    assert fedkge("evaluate", out).exit_code == 0
    for command in ("compare", "sweep", "tune", "account", "unlearn", "yardsticks", "evaluate", "predict"):
        assert "--trust" in fedkge(command, "--help").stdout
