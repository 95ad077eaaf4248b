"""An experiment: a TOML file whose schema is these constructors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedkge.config import build, choose, options
from fedkge.errors import ConfigError
from fedkge.exchange.codec import CODECS, Codec, Float32
from fedkge.exchange.rows import HUB
from fedkge.exchange.select import SELECTIONS, Full, Selection
from fedkge.exports.files import check_names
from fedkge.graphs.graph import Axis, Federation, Graph
from fedkge.methods import METHODS, Method
from fedkge.methods.single import Single
from fedkge.models import MODELS, Model
from fedkge.parties import Participation
from fedkge.privacy import Privacy
from fedkge.registry import Registry
from fedkge.training import Trainer
from fedkge.training.optimizers import OPTIMIZERS
from fedkge.training.private import check_trainer

if TYPE_CHECKING:
    from fedkge.graphs.unify import Unified


@dataclass(frozen=True)
class Data:
    """Where the sites' graphs come from: a known name, or a folder with one folder per site."""

    name: str | None = None
    path: Path | None = None
    ratio: str | None = None  #: splits sites that lack valid or test anew, as in "8:1:1"
    strict: bool = False  #: entities that training never saw are an error
    drop_leaks: bool = False  #: with `path`: a triple in two splits is left out of the later one, no error

    def __post_init__(self) -> None:
        if (self.name is None) == (self.path is None):
            raise ConfigError("name, path: expected one of the two")

    def load(self, seed: int) -> dict[str, Graph]:
        from fedkge.graphs.datasets import load
        from fedkge.graphs.files import read_federation
        from fedkge.graphs.split import parse_ratio, split
        from fedkge.graphs.subgraph import merged

        if self.name is not None:
            federation = load(self.name, strict=self.strict)
        else:
            assert self.path is not None
            federation = read_federation(self.path, strict=self.strict, drop_leaks=self.drop_leaks)
        if self.ratio is None:
            return federation
        ratio = parse_ratio(self.ratio)
        return {
            site: graph if len(graph.valid) and len(graph.test) else split(merged(graph), ratio, seed)
            for site, graph in federation.items()
        }

    def __str__(self) -> str:
        return self.name or str(self.path)


@dataclass(frozen=True)
class Evaluate:
    """When to validate, and when that is enough."""

    every: int = 5  #: rounds between validations
    patience: int = 3  #: validations without a new best before stopping; 0 never stops
    rule: Literal["patience", "drops"] = "patience"  #: drops: consecutive falls count instead
    sides: Literal["both", "head", "tail"] = "both"  #: whose questions decide, and are the headline on test
    keep: Literal["together", "each"] = "together"  #: each: a site keeps the round that is best for itself

    def __post_init__(self) -> None:
        if self.every < 1 or self.patience < 0:
            raise ConfigError(f"every, patience: expected >= 1 and >= 0, got {self.every}, {self.patience}")


@dataclass(frozen=True)
class Marks:
    """Which training triples are confidential, besides those that the data marks; these add up."""

    share: float | None = None  #: of each site's training triples, at random
    relations: Path | None = None  #: a file with a relation per line: all their triples
    triples: Path | None = None  #: a file of triples

    def apply(self, federation: Federation, seed: int) -> Federation:
        from fedkge.graphs.files import read_graph
        from fedkge.graphs.marks import mark_relations, mark_share, mark_triples, read_names

        if self.share is not None:
            federation = mark_share(federation, self.share, seed)
        if self.relations is not None:
            federation = mark_relations(federation, read_names(self.relations))
        if self.triples is not None:
            federation = mark_triples(federation, read_graph(self.triples))
        return federation


@dataclass(frozen=True)
class Align:
    """Who is the same at different sites."""

    names: bool = True  #: equal names are the same thing; false: only what links say
    entities: Path | None = None  #: links between names: TSV pairs, or owl:sameAs in RDF
    relations: Path | None = None  #: the same for relations; in RDF also owl:equivalentProperty

    def apply(self, federation: Federation) -> Unified:
        from fedkge.graphs.links import read_links
        from fedkge.graphs.unify import unify

        files = {Axis.ENTITY: self.entities, Axis.RELATION: self.relations}
        links = {axis: read_links(path, axis) for axis, path in files.items() if path is not None}
        return unify(federation, self.names, links)


PARTS: Mapping[str, Registry[Any]] = {
    "model": MODELS,
    "method": METHODS,
    "select": SELECTIONS,
    "codec": CODECS,
}  #: chosen by name
DEFAULTS = {"method": {"name": "single"}, "select": {"name": "full"}, "codec": {"name": "float32"}}


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's result, besides the device."""

    model: Model
    data: Data
    seed: int = 0
    rounds: int = 100  #: at most; each is `trainer.epochs` passes over the training triples
    start: Path | None = None  #: a finished run whose tables sites begin with, found by name, not at random
    trainer: Trainer = field(default_factory=Trainer)
    method: Method = field(default_factory=Single)
    select: Selection = field(default_factory=Full)
    codec: Codec = field(default_factory=Float32)
    evaluate: Evaluate = field(default_factory=Evaluate)
    participation: Participation = field(default_factory=Participation)
    align: Align = field(default_factory=Align)
    marks: Marks = field(default_factory=Marks)
    privacy: Privacy = field(default_factory=Privacy)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds: expected at least 1, got {self.rounds}")
        self.method.selection(self.select)  # refuses what does not go together
        self.method.coding(self.codec)
        if self.start is not None and self.privacy.mode != "off":
            raise ConfigError(
                f"start: with privacy.mode {self.privacy.mode!r} the tables of another run cannot be gone on "
                "from: what it has released of the same triples is not in this run's ledger; expected "
                "privacy.mode = 'off', or start unset"
            )
        if self.privacy.noisy:
            check_trainer(self.trainer, self.privacy)
        whole_tables = self.method.penalises or self.method.factoring() is not None
        if whole_tables and OPTIMIZERS[self.trainer.optimizer].rows_only:
            whole = ", ".join(name for name, kind in OPTIMIZERS.items() if not kind.rows_only)
            raise ConfigError(
                f"trainer.optimizer: {self.trainer.optimizer} steps touched rows alone, the method holds "
                f"all; expected one of {whole}"
            )

    @property
    def embedding(self) -> Model:
        """The model that sites train: the one asked for, unless the method makes it smaller."""
        return self.method.embedding(self.model)

    @property
    def selection(self) -> Selection:
        """Which rows travel: what was asked for, or what the method insists on."""
        return self.method.selection(self.select)

    @property
    def coding(self) -> Codec:
        """How rows are written: as was asked for, or as the method insists."""
        return self.method.coding(self.codec)

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Experiment:
        whole = dict(config)
        for part in ("data", *PARTS):
            given = whole.get(part, {} if part in DEFAULTS else None)
            if not isinstance(given, Mapping):
                raise ConfigError(f"{part}: expected a table, as in {part} = {{ name = ... }}")
            whole[part] = {**DEFAULTS.get(part, {}), **given}
        return build(
            cls, whole | {part: choose(known, whole[part], part) for part, known in PARTS.items()}, ""
        )

    def config(self) -> dict[str, Any]:
        """Every option with its value; parsing it gives this experiment again."""
        plain = options(self)
        for part, known in PARTS.items():
            plain[part] = {"name": known.name_of(getattr(self, part)), **plain[part]}
        return plain

    def load(self) -> Federation:
        federation = self.numbered(self.marks.apply(self.data.load(self.seed), self.seed))
        check_federation(federation)
        for site, graph in federation.items():
            for split in ("train", "valid", "test"):
                if not len(graph.split(split)):
                    raise ConfigError(
                        f"site {site!r} has no {split} triples; name a ratio, as in data.ratio = '8:1:1', "
                        "or split the data with `fedkge data split`"
                    )
        return federation

    def numbered(self, federation: Federation) -> Federation:
        """The same sites; what is confidential has no influence on who has which id.

        Ids in the order of first appearance, as files have them, would tell which names confidential
        triples begin with, and seeded choices of ids would depend on them.
        """
        from fedkge.graphs.subgraph import in_name_order

        every = self.privacy.mode == "fulldp"
        return {
            site: in_name_order(graph) if every or graph.confidential is not None else graph
            for site, graph in federation.items()
        }


def check_federation(federation: Federation) -> None:
    """Names that folders and files can have, and a hub of its own name: said before hours of training."""
    for site, graph in federation.items():
        if site == HUB:
            raise ConfigError(f"a site is named {HUB!r}, as the hub is; rename its folder")
        if not site or site in (".", "..") or Path(site).name != site:
            raise ConfigError(f"a site is named {site!r}, which no folder can be; expected a plain name")
        check_names(graph.entities)
        check_names(graph.relations)
