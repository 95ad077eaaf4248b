"""What an experiment cannot use of its data, said before hours of training."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from fedkge.errors import ConfigError, DataWarning
from fedkge.exchange.announce import LONGEST_ID
from fedkge.exchange.rows import HUB
from fedkge.exports.files import check_names
from fedkge.graphs.graph import Federation, Graph
from fedkge.graphs.streams import CONTROL
from fedkge.methods import Member
from fedkge.runs.experiment import Experiment
from fedkge.training.confidential import hides, marked


def check_federation(federation: Federation) -> None:
    """Names that folders and files can have, and a hub of its own name: said before hours of training."""
    for site, graph in federation.items():
        if site.lower() == HUB:
            raise ConfigError(f"a site is named {site!r}, as the hub is; rename its folder")
        if not is_folder_name(site):
            raise ConfigError(f"a site is named {site!r}, which no folder can be; expected a plain name")
        for names in (graph.entities, graph.relations):
            check_names(names)
            odd = next((name for name in names if CONTROL.search(name)), None)
            if odd is not None:
                raise ConfigError(
                    f"site {site!r}: {names.axis} {odd[:80]!r} has a control character in its name; rename it"
                )
            long = next((name for name in names if len(name) * 4 > LONGEST_ID < len(name.encode())), None)
            if long is not None:
                raise ConfigError(
                    f"site {site!r}: a name of {len(long.encode()):,} bytes ({long[:40]!r}...), expected at "
                    f"most {LONGEST_ID:,}"
                )


def is_folder_name(name: str) -> bool:
    """Whether a folder can have this name on any system, and no terminal is steered by it."""
    plain = bool(name) and Path(name).name == name and not CONTROL.search(name) and len(name.encode()) <= 200
    stem = name.split(".")[0].upper()
    taken = stem in ("CON", "PRN", "AUX", "NUL") or bool(re.fullmatch(r"(COM|LPT)\d", stem))  # Windows' own
    return (
        plain
        and not taken
        and name[0] not in ".~"
        and name[-1] not in ". "
        and not set(name) & set('\\:*?"<>|')
    )


def check_splits(site: str, graph: Graph) -> None:
    """Every split has triples."""
    for split in ("train", "valid", "test"):
        if not len(graph.split(split)):
            raise ConfigError(
                f"site {site!r} has no {split} triples; name a ratio, as in data.ratio = '8:1:1', "
                "or split the data with `fedkge data split`"
            )


def check_apart(experiment: Experiment, member: Member) -> None:
    """A method that pools the sites' graphs would take persons out of their site."""
    if len(member.parts) > 1 and experiment.persons.named:
        raise ConfigError(
            "method: it pools the graphs of all sites, and names and rows of persons never leave theirs; "
            "expected another method, or no persons"
        )


def check_marks(experiment: Experiment, graphs: Federation) -> None:
    """Marks and mode must go together: said before hours of training, and before anything is released."""
    privacy = experiment.privacy
    counts = {name: int(marked(graph, privacy).sum()) for name, graph in graphs.items()}
    if privacy.mode == "off":
        for name, count in counts.items():
            if count:
                warnings.warn(
                    f"site {name!r}: {count:,} confidential triples are trained on like all others "
                    "(privacy.mode is off)",
                    DataWarning,
                    stacklevel=2,
                )
    elif not any(hides(graph, privacy) for graph in graphs.values()):
        raise ConfigError(
            f"privacy.mode: {privacy.mode!r}, but no training triple of any site is confidential; mark "
            "some with `fedkge data mark`, or as in marks = { share = 0.5 }"
        )
