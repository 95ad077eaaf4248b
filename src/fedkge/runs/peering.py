"""A peer's own file: who it is, what it trains on, whom it knows; and the peer that follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Self, TypeVar

import torch

from fedkge.config import read_toml
from fedkge.errors import ConfigError
from fedkge.exchange.announce import identify
from fedkge.graphs.calling import called
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.said import blank_apart, lifted
from fedkge.methods import Member
from fedkge.methods.base import Part
from fedkge.methods.ends import Keys
from fedkge.methods.fkge import FKGE
from fedkge.nodes.base import Event, Setting
from fedkge.nodes.identity import Identity
from fedkge.nodes.making import peer_node
from fedkge.nodes.peer import PeerNode
from fedkge.nodes.protection import trained_on
from fedkge.nodes.terms import Terms
from fedkge.plugins import load_files
from fedkge.privacy.keyfile import key_in
from fedkge.runs.account import accounts_beside
from fedkge.runs.aligning import links_of, listed, secret_of
from fedkge.runs.experiment import Align, Persons
from fedkge.training.secret import BYTES, Secret

T = TypeVar("T", bound=Any)
SECRET = "secret.key"  #: what a peer draws its matrices and its noise from


@dataclass(frozen=True)
class Partner:
    """Another peer."""

    address: str  #: host and port
    certificate: Path


@dataclass(frozen=True, kw_only=True)
class PeerFile(Terms):
    """One peer of a federation: terms as in an experiment, and who and where it is."""

    name: str
    federation: str  #: what the meeting is called; the same at all peers
    graph: Path  #: the folder with this site's train, valid and test
    folder: Path  #: what the peer keeps: tables, journal, ledger, checkpoint, secret
    listen: str  #: host and port
    key: Path
    certificate: Path
    peers: Mapping[str, Partner] = field(default_factory=dict)
    align: Align = field(default_factory=Align)  #: as in an experiment; all peers have the same links
    timeout: float = 120.0  #: seconds that an answer is waited for
    nap: float = 5.0  #: seconds that a peer sleeps before it looks around again
    persons: Persons = field(default_factory=Persons)  #: as in an experiment
    absence: float = 600.0  #: seconds of silence after which nobody waits for a peer any more
    most: int = 64  #: megabytes of a message; larger ones are refused

    def __post_init__(self) -> None:
        super().__post_init__()
        self.persons.check(self.privacy)
        if not isinstance(self.method, FKGE):
            raise ConfigError("method.name: only fkge works without a hub; expected fkge")
        if self.method.intersect == "ids" and self.align.secret is None:
            raise ConfigError(
                "method.intersect: 'ids' tells partners all names; expected 'psi', or a common `align.secret`"
            )
        if self.name in self.peers or not self.peers:
            raise ConfigError("peers: expected at least one other peer, and not this one")
        addresses = {f"peers.{name}.address": one.address for name, one in self.peers.items()}
        for name, address in {"listen": self.listen, **addresses}.items():
            port = address.rpartition(":")[2]
            if ":" not in address or not port.isdecimal() or not 0 < int(port) < 1 << 16:
                raise ConfigError(f"{name}: {address!r}, expected host and port, as in '10.1.2.3:7101'")
        for name in ("timeout", "nap", "absence", "most"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        if not self.absence > self.timeout:
            raise ConfigError(
                f"absence: {self.absence:g}, expected more than timeout ({self.timeout:g}): a peer is silent "
                "while it waits for an answer"
            )

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file; paths in it are relative to where it is."""
        options = read_toml(path)
        try:
            plugins = load_files(options.get("plugins", ()), path.parent)
            made = cls.parse(options | {"plugins": plugins})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        return made.beside(path.parent)

    def beside(self, folder: Path) -> Self:
        """The same with paths below a folder."""
        own = {n: folder / getattr(self, n) for n in ("graph", "folder", "key", "certificate")}
        peers = {n: replace(one, certificate=folder / one.certificate) for n, one in self.peers.items()}
        persons = _below(folder, self.persons, "names", "relations")
        align = _below(folder, self.align, "entities", "relations", "secret", "withhold")
        return replace(self, **own, peers=peers, persons=persons, align=align)


def _below(folder: Path, options: T, *names: str) -> T:
    """Options with those of these paths that are given below a folder."""
    found = {n: getattr(options, n) for n in names}
    return replace(options, **{n: folder / path for n, path in found.items() if path is not None})


def own_secret(folder: Path) -> bytes:
    """A peer's secret, made when it first starts; only its owner may read it."""
    return key_in(folder / SECRET)


def peer_keys(folder: Path) -> Keys:
    """For matrices and orders, and for noise; a session's nonces see to it that nothing is drawn twice."""
    content = own_secret(folder)
    noise = hashlib.blake2b(b"noise", key=content, digest_size=BYTES).digest()
    return Keys(Secret(content), Secret(noise))


def read_own_graph(path: Path) -> Graph:
    """The site's graph, which must have all three splits."""
    from fedkge.graphs.files import read_graph

    graph = lifted({"": read_graph(path)})[0][""]
    for split in ("train", "valid", "test"):
        if not len(graph.split(split)):
            raise ConfigError(f"graph: {path} has no {split} triples; split it with `fedkge data split`")
    return graph


def peer_of(
    file: PeerFile,
    device: torch.device,
    tell: Callable[[str, Event], None] = lambda node, event: None,
    nonce: Callable[[str], str] = lambda talk: token_hex(8),
    lasting: bool = True,
) -> PeerNode:
    """The peer of a file, as it begins; one that is not `lasting` writes nothing, as in a replay."""
    found = file.persons.of({file.name: read_own_graph(file.graph)}, file.privacy.by_person)
    graph = found[file.name]
    member = Member(
        trained_on(file, file.name, graph, partial(own_secret, file.folder)), {file.name: Part(graph)}
    )
    secret, links = secret_of(file.align), links_of(file.align, {file.name: graph})
    plain = secret is None and not links and file.align.names
    own = blank_apart({file.name: graph})[file.name]
    common = own if plain else called(file.name, graph, file.align.names, links)
    names = {Axis.ENTITY: common.entities, Axis.RELATION: common.relations}
    ids = {axis: identify(own, axis, secret) for axis, own in names.items()}
    home, account = file.folder if lasting else None, accounts_beside(file.graph) / file.name
    setting = Setting(file.federation, home, often=lasting, tell=tell, account=account)
    hidden = file.persons.hidden(graph)
    hidden[Axis.ENTITY] |= listed(file.align, {file.name: graph}, file.name)
    identity = Identity(ids, {file.name: graph}, {axis: rows for axis, rows in hidden.items() if rows})
    file.persons.tell_hidden(file.name, graph)
    others = [file.name, *file.peers]
    keys = peer_keys(file.folder)
    return peer_node(file.name, file, member, identity, others, keys, setting, device, nonce=nonce)
