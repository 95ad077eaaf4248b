"""The files of a hub and of a site: who they are, what is trained, and where things lie."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Self

from fedkge.config import build, read_toml
from fedkge.errors import ConfigError
from fedkge.graphs.graph import Graph
from fedkge.methods import Member, Method
from fedkge.nodes.accept import Accept
from fedkge.nodes.identity import Identity
from fedkge.nodes.terms import Terms
from fedkge.plugins import load_files
from fedkge.privacy import Privacy
from fedkge.runs.data import Sources
from fedkge.runs.dividing import with_marks
from fedkge.runs.experiment import Account, Align, Data, Experiment, Marks, Persons
from fedkge.training.confidential import hides


@dataclass(frozen=True, kw_only=True)
class HubFile(Terms):
    """The hub of a federation: terms as in an experiment, and who takes part."""

    sites: tuple[str, ...]  #: who takes part, by the names in their certificates
    folder: Path  #: what the hub keeps: journal, checkpoints
    authority: Path  #: the folder that `fedkge keys authority` made
    timeout: float = 600.0  #: seconds that a round's answers are waited for
    assembly: float = 86400.0  #: seconds that the hub waits for sites to come, when it is started
    most: int = 4096  #: megabytes of a message; a site that sends more is cut off
    pseudonyms: bool = True  #: false: sites may announce names

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method.hubless or type(self.method).members is not Method.members:
            raise ConfigError(
                "method.name: expected a method with a hub, in which graphs stay where they are"
            )
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise ConfigError(f"sites: {list(self.sites)}, expected the name of each site, once")
        _check_above_zero(self, "timeout", "assembly", "most")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file; paths in it are relative to where it is."""
        try:
            options = read_toml(path)
            plugins = load_files(options.get("plugins", ()), path.parent)
            made = cls.parse(options | {"plugins": plugins})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        return replace(made, folder=path.parent / made.folder, authority=path.parent / made.authority)


@dataclass(frozen=True, kw_only=True)
class SiteFile:
    """A site: its graph, its key and kit, and where it keeps what it makes. The hub says what is trained."""

    graph: Path  #: the folder with this site's train, valid and test
    folder: Path  #: what the site keeps: tables, journal, ledger, checkpoint
    kit: Path  #: what the hub has sent
    key: Path  #: the private key, which never leaves the site
    most: int = 4096  #: megabytes of a message; a hub that sends more is cut off
    align: Align = field(default_factory=Align)  #: who is the same elsewhere, as in an experiment
    marks: Marks = field(default_factory=Marks)  #: which triples are confidential, as in an experiment
    persons: Persons = field(default_factory=Persons)  #: which entities are persons, as in an experiment
    account: Account = field(default_factory=Account)  #: where the site's own ledger is, as in an experiment
    accept: Accept = field(default_factory=Accept)  #: what the site lets the hub ask for
    plugins: tuple[str, ...] = ()  #: Python files with parts that the hub may ask for

    def __post_init__(self) -> None:
        _check_above_zero(self, "most")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file; paths in it are relative to where it is."""
        try:
            made = build(cls, read_toml(path), "")
            load_files(made.plugins, path.parent)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        return _beside(made, path.parent)

    def experiment(self, terms: Terms) -> Experiment:
        """The experiment of a run on these terms, as far as this site knows it."""
        asked: dict[str, Any] = {one.name: getattr(terms, one.name) for one in fields(Terms)}
        return Experiment(
            **asked,
            data=Data(path=self.graph.parent),
            align=self.align,
            marks=self.marks,
            persons=self.persons,
            account=self.account,
        )

    def sources(self, name: str, graph: Graph, experiment: Experiment) -> tuple[Member, Identity]:
        """What the site trains on and is called by: what an experiment on all sites' graphs would give it."""
        sources = Sources.of(experiment, with_marks(self.marks, {name: graph}, experiment.seed))
        here = hides(sources.named[name], experiment.privacy)
        own = experiment if here else replace(experiment, privacy=Privacy())  # others may have some to hide
        member = sources.members(own)[name]
        return member, sources.identity(experiment, member)


def _beside(made: Any, folder: Path) -> Any:
    """The same with paths below a folder, in tables too."""
    found = {one.name: getattr(made, one.name) for one in fields(made)}
    moved = {
        name: folder / value if isinstance(value, Path) else _beside(value, folder)
        for name, value in found.items()
        if isinstance(value, Path) or is_dataclass(value)
    }
    return replace(made, **moved)


def _check_above_zero(of: object, *names: str) -> None:
    for name in names:
        if not getattr(of, name) > 0:
            raise ConfigError(f"{name}: expected a number above 0, got {getattr(of, name)}")
