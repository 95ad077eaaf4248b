"""A run is a folder: configuration, journal, summary, checkpoints, and each site's tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedkge.config import read_toml, to_toml
from fedkge.errors import ConfigError, DataError, FedkgeError, suggest
from fedkge.evaluation import Ranks
from fedkge.exports.files import load_embeddings, save_embeddings
from fedkge.graphs.graph import Federation, Graph, Names
from fedkge.models import Side, Tables
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.journal import Journal

LOCK = ".lock"
RANKS = "ranks.safetensors"  #: of a site's test triples


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
        inside = path / "checkpoints"
        made = tuple(folder for folder in (inside, *inside.parents) if not folder.exists())
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
                for name in ("run.jsonl", "config.toml", LOCK):
                    (self.path / name).unlink(missing_ok=True)
                for folder in self.made:
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
        if Experiment.parse(read_toml(config)).config() != experiment.config():
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
        import fcntl

        with (self.path / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{self.path}: another process is running this run; wait for it") from None
            yield

    @property
    def journal(self) -> Journal:
        return Journal(self.path / "run.jsonl")

    def experiment(self) -> Experiment:
        return Experiment.parse(read_toml(self.path / "config.toml"))

    def sites(self) -> list[str]:
        folder = self.path / "sites"
        return sorted(site.name for site in folder.iterdir()) if folder.is_dir() else []

    def save_site(self, site: str, tables: Tables, graph: Graph, view: str = "") -> None:
        """The tables that a site is measured by, or a view of them that its method has beside."""
        from safetensors import SafetensorError

        folder = self.path / "sites" / site / view
        try:
            save_embeddings(tables, graph, folder, "safetensors")
        except (OSError, SafetensorError) as error:
            raise DataError(f"{folder}: cannot be written: {error}; mend it and give --resume") from None

    def save_ranks(self, site: str, ranks: Ranks) -> None:
        """The realistic rank of every test triple's head and tail, in the triples' order."""
        from safetensors.torch import save

        by_side = {}
        for side in Side:
            own = ranks.side(side)
            values = torch.empty(len(own))  # float32: halves are exact up to 2^23
            values[torch.from_numpy(own.triple)] = torch.from_numpy(own.values()).float()
            by_side[str(side)] = values
        write_whole(self.path / "sites" / site / RANKS, save(by_side))

    def load_site(self, site: str, view: str = "") -> tuple[Tables, Names, Names]:
        if site not in self.sites():
            known = self.sites()
            raise DataError(
                f"{self.path}: no tables of a site named {site!r}{suggest(site, known)} "
                f"(known: {', '.join(known) or 'none; has the run ended?'})"
            )
        home = self.path / "sites" / site
        views = sorted(folder.name for folder in home.iterdir() if folder.is_dir())
        if view and view not in views:
            raise DataError(
                f"{home}: no tables named {view!r}{suggest(view, views)} "
                f"(beside those that it is measured by: {', '.join(views) or 'none'})"
            )
        return load_embeddings(home / view)

    def save_checkpoint(self, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Tensors and plain state under one name, whole or not at all."""
        from safetensors.torch import save

        content: dict[str, Tensor] = {}
        there: set[int] = set()
        for key, tensor in tensors.items():
            own = tensor.detach().cpu().contiguous()
            content[key] = own.clone() if own.data_ptr() in there else own  # one may be held twice
            there.add(own.data_ptr())
        write_whole(self._checkpoint(name), save(content, metadata={"state": json.dumps(state)}))

    def load_checkpoint(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        return self._load(name, lambda file: {key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118

    def checkpoint_state(self, name: str) -> dict[str, Any] | None:
        """The plain state of a checkpoint, without its tensors."""
        found = self._load(name, lambda file: {})
        return None if found is None else found[1]

    def _load(
        self, name: str, tensors: Callable[[Any], dict[str, Tensor]]
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        path = self._checkpoint(name)
        if not path.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                return tensors(file), json.loads(file.metadata()["state"])
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: not a checkpoint ({error}); delete it to train from the start"
            ) from None

    def _checkpoint(self, name: str) -> Path:
        return self.path / "checkpoints" / f"{name}.safetensors"

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.path / "summary.json", json.dumps(summary, indent=2).encode())

    def data(self) -> Federation:
        """The graphs that the finished run was trained on, from where it had them."""
        federation = self.experiment().load()
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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it holds the old content or the new, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(
            f"{path}: cannot be written: {error.strerror}; what was there before is kept"
        ) from None
