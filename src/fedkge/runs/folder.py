"""A run is a folder: configuration, journal, summary, checkpoints, and each site's tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Any

from fedkge.config import read_toml, to_toml
from fedkge.durable import json_text
from fedkge.errors import ConfigError, DataError, FedkgeError, suggest
from fedkge.evaluation import Ranks
from fedkge.exports.files import load_embeddings
from fedkge.graphs.graph import Federation, Ids, Names
from fedkge.methods import Member
from fedkge.models import Tables
from fedkge.nodes.journal import Journal
from fedkge.nodes.result import RANKS, packed_ranks
from fedkge.nodes.store import locked, write_whole
from fedkge.plugins import load_known
from fedkge.runs.data import load
from fedkge.runs.experiment import Experiment

LOCK = ".lock"
TABLES = "entities.safetensors"  #: what makes a folder one of tables
FORMAT = 2  #: of run folders; 1 had one checkpoint for all parties
OF_BEFORE = ("checkpoints/federation.safetensors", "ledger.jsonl")  #: what only runs of format 1 have there
RENAMED = {("marks", "statements"): "triples", ("method", "aggregate"): "measure_hub"}  #: options since then


@dataclass(frozen=True)
class RunFolder:
    """Where one run keeps what it made."""

    path: Path
    made: tuple[Path, ...] = ()  #: folders that were not there before, from the inside out

    @classmethod
    def create(cls, path: Path, experiment: Experiment, resume: bool) -> RunFolder:
        """A new folder, or with `resume` one that the same experiment left."""
        if cls.taken(path, experiment, resume):
            return cls(path)
        if resume:
            raise ConfigError(f"{path}: no run to resume")
        inside = path / "sites"
        folders = (path / "hub", inside, *inside.parents)
        made = tuple(folder for folder in folders if not folder.exists())
        try:
            inside.mkdir(parents=True, exist_ok=True)
            write_whole(path / "config.toml", to_toml(experiment.config()).encode())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
        return cls(path, made)

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """A new run that fails in here takes with it what it made; the folder of a resumed one stays."""
        begun = self.journal.path.exists()
        try:
            yield
        except FedkgeError:
            if self.made and not begun:
                for name in ("run.jsonl", "run.json", "config.toml", LOCK):
                    (self.path / name).unlink(missing_ok=True)
                for folder in self.made:
                    if folder.parent == self.path:  # of nodes, which have not begun
                        rmtree(folder, ignore_errors=True)
                    with suppress(OSError):  # something else is in it
                        folder.rmdir()
            raise

    @staticmethod
    def taken(path: Path, experiment: Experiment, resume: bool) -> bool:
        """Whether this experiment's run is there, to be resumed; a run that is in the way is an error."""
        config = path / "config.toml"
        if not config.exists():
            return False
        if not resume:
            raise ConfigError(f"{path}: holds a run already; choose another folder or give --resume")
        if any((path / file).exists() for file in OF_BEFORE):
            raise ConfigError(
                f"{path}: a run of an earlier version of fedkge, which this one can read but not go on with; "
                "finish it with that version, or run anew in another folder"
            )
        if read_toml(config).get("plugins", []) != list(experiment.plugins):  # before those are run again
            raise ConfigError(
                f"{config}: another experiment; a run is resumed with the same plugins, unedited since"
            )
        if not _written(config).alike(experiment):
            raise ConfigError(f"{config}: another experiment; a run is resumed with the same options")
        return True

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.toml").is_file():
            raise DataError(f"{path}: not a run folder; expected one with config.toml, as `fedkge run` makes")
        return cls(path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out; the lock is gone with the process, however it ends."""
        with locked(self.path / LOCK) as free:
            if not free:
                raise ConfigError(f"{self.path}: another process is running this run; wait for it")
            yield

    @property
    def journal(self) -> Journal:
        return Journal(self.path / "run.jsonl")

    def experiment(self) -> Experiment:
        return _written(self.path / "config.toml")

    def sites(self) -> list[str]:
        folder = self.path / "sites"
        return sorted(file.parent.name for file in folder.glob(f"*/{TABLES}"))

    def save_ranks(self, site: str, ranks: Ranks, triples: Ids) -> None:
        """The test triples, and the realistic rank of each's head and tail."""
        write_whole(self.path / "sites" / site / RANKS, packed_ranks(ranks, triples))

    def load_site(self, site: str, view: str = "") -> tuple[Tables, Names, Names]:
        if site not in self.sites():
            known = self.sites()
            raise DataError(
                f"{self.path}: no tables of a site named {site!r}{suggest(site, known)} "
                f"(known: {', '.join(known) or 'none; has the run ended?'})"
            )
        load_known(read_toml(self.path / "config.toml").get("plugins", ()))
        home = self.path / "sites" / site
        views = sorted(file.parent.name for file in home.glob(f"*/{TABLES}"))
        if view and view not in views:
            raise DataError(
                f"{home}: no tables named {view!r}{suggest(view, views)} "
                f"(beside those that it is measured by: {', '.join(views) or 'none'})"
            )
        return load_embeddings(home / view)

    # Nodes

    def home(self, name: str, member: Member | None = None) -> Path:
        """The folder of a node: the hub's, a site's, or that of a member that pools sites' graphs."""
        return self.path / "sites" / name if member is not None and name in member.parts else self.path / name

    def begin(self, digests: Mapping[str, str]) -> str:
        """The id of the run, made when it first starts; an error if it goes on with other data."""
        path = self.path / "run.json"
        if path.is_file():
            try:
                known = json.loads(path.read_text(encoding="utf-8"))
                run, sites = str(known["run"]), dict(known["sites"])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}: cannot be read ({error!r}); restore the file, or run anew"
                ) from None
            self.check_digests(sites, digests)
            return run
        run = token_hex(8)
        write_whole(path, json.dumps({"format": FORMAT, "run": run, "sites": dict(digests)}).encode())
        return run

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.path / "summary.json", json_text(summary, indent=2).encode())

    def data(self) -> Federation:
        """The graphs that the finished run was trained on, from where it had them."""
        federation = load(self.experiment()).named
        self.check_data(federation)
        return federation

    def check_data(self, federation: Federation) -> None:
        """An error if these are not the graphs that the finished run was trained on."""
        trained = {site: of["digest"] for site, of in self.summary()["sites"].items()}
        self.check_digests(trained, {site: graph.digest() for site, graph in federation.items()})

    def check_digests(self, trained: Mapping[str, str], found: Mapping[str, str]) -> None:
        for site in sorted(trained.keys() | found.keys()):
            if trained.get(site) != found.get(site):
                raise DataError(
                    f"{self.path}: site {site!r} has other triples or marks than the run was trained on; "
                    "expected the same files: restore them, or run anew"
                )

    def summary(self) -> dict[str, Any]:
        path = self.path / "summary.json"
        if not path.is_file():
            raise DataError(f"{path}: no such file; has the run ended? `fedkge run --resume` goes on with it")
        try:
            summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path}: not JSON: {error}; expected the summary that a run writes") from None
        return summary


def _written(config: Path) -> Experiment:
    """The experiment of a run, in which options may have names of earlier versions."""
    plain = read_toml(config)
    for (part, name), now in RENAMED.items():
        table = plain.get(part)
        if isinstance(table, dict) and name in table:
            table[now] = table.pop(name)
    return Experiment.parse(plain)
