"""A node's kit: everything that its process needs, in its own folder and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.config import build, options, read_toml
from fedkge.errors import DataError
from fedkge.exchange.rows import HUB
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.methods import Member
from fedkge.methods.base import Part
from fedkge.nodes.accept import Accept
from fedkge.nodes.base import Event, Node, Setting
from fedkge.nodes.hub import HubNode
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import First, Learner
from fedkge.nodes.protection import check_validation, protection, trained_on
from fedkge.nodes.site import SiteNode
from fedkge.nodes.stack import Stack
from fedkge.nodes.store import Store, packed, unpacked, write_whole
from fedkge.nodes.terms import Terms
from fedkge.runs.account import person_key

NODE, KIT = "node.json", "kit.checkpoint"


def pack_hub(
    home: Path,
    terms: Terms,
    run: str,
    sites: Sequence[str],
    device: torch.device,
    pseudonyms: bool = False,
) -> None:
    """The hub's: the terms, who may join, and whether under pseudonyms."""
    first = getattr(terms, "start", None) is not None
    about = {"run": run, "id": HUB, "sites": list(sites), "first": first, "pseudonyms": pseudonyms}
    _write(home, terms, {**about, "device": str(device)})


def pack_site(
    home: Path,
    terms: Terms,
    run: str,
    name: str,
    identity: Identity,
    member: Member,
    first: First | None,
    device: torch.device,
    account: Path,
    accept: Accept = Accept(),  # noqa: B008 - frozen
) -> None:
    """A site's: the terms, what it accepts, its graph with its ids, what it begins with, and its ledger."""
    about = {"account": str(account.resolve()), "accept": options(accept)}
    _write(home, terms, {"run": run, "id": name, "device": str(device), **about})
    if (home / KIT).exists():
        return
    graph = member.parts[name].graph
    tensors = {str(split): torch.from_numpy(triples) for split, triples in graph.splits().items()}
    if graph.confidential is not None:
        tensors["confidential"] = torch.from_numpy(graph.confidential)
    if graph.persons is not None:
        tensors["persons"] = torch.from_numpy(graph.persons)
    for axis, (at, rows) in (first or {}).items():
        tensors |= {f"first.{axis}.at": at, f"first.{axis}.rows": rows.contiguous()}
    own = identity.named[name]
    plain = {
        "names": [list(own.entities), list(own.relations)],
        "called": [list(graph.entities), list(graph.relations)],
        "ids": {str(axis): [one.hex() for one in ids] for axis, ids in identity.ids.items()},
        "withheld": {str(axis): sorted(rows) for axis, rows in identity.withheld.items()},
        "fingerprint": identity.fingerprint,
    }
    write_whole(home / KIT, packed(tensors, plain))


def _write(home: Path, terms: Terms, node: dict[str, Any]) -> None:
    Store(home).write_config(terms.terms())
    write_whole(home / NODE, json.dumps(node).encode())


def unpack(home: Path, tell: Callable[[str, Event], None]) -> Node:
    """The node of a folder, as it was when it last wrote its state."""
    try:
        about = json.loads((home / NODE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{home / NODE}: {error}; expected the folder of a node") from None
    terms = Terms.parse(read_toml(home / "config.toml"))
    setting = Setting(about["run"], home, often=True, tell=tell)
    device = torch.device(about["device"])
    if about["id"] == HUB:
        pseudonyms = about.get("pseudonyms", False)
        node: Node = HubNode(
            terms, about["sites"], setting, about["first"], device=device, pseudonyms=pseudonyms
        )
    else:
        accept = build(Accept, about.get("accept", {}), "accept")
        node = _site(home, terms, about["id"], setting, device, Path(about["account"]), accept)
    node.resume()
    if isinstance(node, SiteNode):
        node.check_budget()
    return node


def _site(
    home: Path,
    terms: Terms,
    name: str,
    setting: Setting,
    device: torch.device,
    account: Path,
    accept: Accept,
) -> SiteNode:
    try:
        tensors, plain = unpacked((home / KIT).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{home / KIT}: {error}") from None
    train, valid, test = (tensors[split].numpy() for split in ("train", "valid", "test"))
    marks, persons = (
        tensors[mark].numpy().astype(np.bool_) if mark in tensors else None
        for mark in ("confidential", "persons")
    )
    named, called = (
        Graph(Names(entities), Names(relations, Axis.RELATION), train, valid, test, marks, persons)
        for entities, relations in (plain["names"], plain["called"])
    )
    check_validation(terms, name, called)
    key = partial(person_key, account)
    member = Member(trained_on(terms, name, called, key), {name: Part(called)})
    ids = {Axis(axis): [bytes.fromhex(one) for one in own] for axis, own in plain["ids"].items()}
    withheld = {Axis(axis): rows for axis, rows in plain["withheld"].items()}
    own = protection(terms, name, member.graph, home, {name: account}, setting.run)
    stack = Stack(terms, {name: member}, {name: ids}, device, True, own)
    learner = Learner(stack, name)
    first = {
        axis: (tensors[f"first.{axis}.at"], tensors[f"first.{axis}.rows"])
        for axis in Axis
        if f"first.{axis}.at" in tensors
    }
    if first:
        learner.lay(first)
    identity = Identity(ids, {name: named}, withheld, plain.get("fingerprint"))
    return SiteNode(name, terms, learner, identity, setting, accept)
