"""The files of a hub and of a site: who they are, what is trained, and where things lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fedkge.config import build, read_toml
from fedkge.errors import ConfigError
from fedkge.methods import Method
from fedkge.nodes.terms import Terms


@dataclass(frozen=True, kw_only=True)
class HubFile(Terms):
    """The hub of a federation: terms as in an experiment, and who takes part."""

    sites: tuple[str, ...]  #: who takes part, by the names in their certificates
    folder: Path  #: what the hub keeps: journal, checkpoints
    authority: Path  #: the folder that `fedkge keys authority` made
    timeout: float = 600.0  #: seconds that a round's answers are waited for
    assembly: float = 86400.0  #: seconds that the hub waits for sites to come, when it is started
    most: int = 4096  #: megabytes of a message; a site that sends more is cut off

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
            made = cls.parse(read_toml(path))
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
    secret: Path | None = None  #: a file that the sites share: the hub is told pseudonyms; unset: names
    most: int = 4096  #: megabytes of a message; a hub that sends more is cut off

    def __post_init__(self) -> None:
        _check_above_zero(self, "most")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file; paths in it are relative to where it is."""
        try:
            made = build(cls, read_toml(path), "")
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        own = {name: path.parent / getattr(made, name) for name in ("graph", "folder", "kit", "key")}
        return replace(made, **own, secret=None if made.secret is None else path.parent / made.secret)


def _check_above_zero(of: object, *names: str) -> None:
    for name in names:
        if not getattr(of, name) > 0:
            raise ConfigError(f"{name}: expected a number above 0, got {getattr(of, name)}")
