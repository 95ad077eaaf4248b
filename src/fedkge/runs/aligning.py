"""Who is the same as whom, as an experiment says: links, names that are withheld, a secret."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.graph import Axis, Federation
from fedkge.graphs.links import Link, read_links
from fedkge.graphs.prefixes import full_names
from fedkge.graphs.unify import Unified, unify
from fedkge.runs.experiment import Align


def aligned(
    align: Align, federation: Federation, said: Mapping[Axis, Sequence[Link]] = MappingProxyType({})
) -> Unified:
    """The same graphs under names that say who is the same.

    With a secret every site aligns by itself, and nobody can tell what became of which link. What one graph
    says (`said`) other sites then do not know, and it is left out with a warning.
    """
    from fedkge.graphs.calling import called_apart

    links = links_of(align, federation)
    if said and (align.secret is not None or len(federation) == 1):
        warnings.warn(
            f"{sum(map(len, said.values())):,} links in the graphs (owl:sameAs) are left out: other sites do "
            "not know them; give all sites the same file of links (align.entities)",
            DataWarning,
            stacklevel=2,
        )
        said = {}
    if align.secret is not None:
        return Unified(called_apart(federation, align.names, links), ())
    return unify(federation, align.names, links, said)


def links_of(align: Align, federation: Federation) -> dict[Axis, list[Link]]:
    """The links of the files that are given."""
    files = {Axis.ENTITY: align.entities, Axis.RELATION: align.relations}
    given = {axis: read_links(path, axis) for axis, path in files.items() if path is not None}
    return {axis: _full(federation, axis, links) for axis, links in given.items()}


def _full(federation: Federation, axis: Axis, links: Sequence[Link]) -> list[Link]:
    """The same links; short names are written out."""
    left = full_names(federation, axis, [link.left for link in links])
    right = full_names(federation, axis, [link.right for link in links])
    return [replace(link, left=a, right=b) for link, a, b in zip(links, left, right, strict=True)]


def listed(align: Align, named: Federation, site: str) -> set[int]:
    """The entities of a site that `align.withhold` names."""
    if align.withhold is None:
        return set()
    from fedkge.graphs.marks import read_names

    hidden = set(full_names(named, Axis.ENTITY, read_names(align.withhold)))
    unknown = sorted(hidden.difference(*(graph.entities for graph in named.values())))
    if unknown:
        raise ConfigError(
            f"align.withhold: {align.withhold}: {unknown[0]!r} is no entity of any site; "
            "expected names as the sites have them"
        )
    return {i for i, name in enumerate(named[site].entities) if name in hidden}


def secret_of(align: Align) -> bytes | None:
    """The secret that sites share, if they have one."""
    return None if align.secret is None else checked_secret(align.secret)


def checked_secret(path: Path) -> bytes:
    """A secret that sites share."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"align.secret: {path}: expected a file, found a folder, pipe or device")
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise DataError(f"align.secret: {path}: {error.strerror}") from None
    if len(secret) < 16:
        raise ConfigError(f"align.secret: {path} has {len(secret)} bytes, expected at least 16, at random")
    return secret
