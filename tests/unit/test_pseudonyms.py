"""Alignment under a secret: pseudonyms, what a hub can do with them, and sites that are not of one mind."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.errors import FedkgeError
from fedkge.exchange.announce import PSEUDONYM, announcement, fingerprint, identify
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import encode, length
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.models import Tables
from fedkge.nodes.hub import HubNode
from fedkge.randomness import byte_keys
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes import simulate
from fedkge.runtimes.run import run
from forgeries import Forge, about, carrying, noting
from small_federations import experiment, federated, played, rows, small_federation
from small_nodes import ByHand, answer, events, hub, joining, question

SITES = small_federation()
E = Axis.ENTITY
SECRET = bytes(range(32))
FEDEP: dict[str, Any] = {"method": {"name": "fedep"}}


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "secret").write_bytes(SECRET)
    return {"align": {"secret": str(tmp_path / "secret")}}


# Pseudonyms are HMAC-SHA-256, by two witnesses


def by_hand(key: bytes, text: bytes) -> bytes:
    """RFC 2104: H(K xor opad, H(K xor ipad, text)), with blocks of 64 bytes."""
    key = hashlib.sha256(key).digest() if len(key) > 64 else key
    inner, outer = (
        bytes(a ^ b for a, b in zip(key.ljust(64, b"\0"), [pad] * 64, strict=True)) for pad in (54, 92)
    )
    return hashlib.sha256(outer + hashlib.sha256(inner + text).digest()).digest()


@pytest.mark.parametrize("key", [b"0" * 16, SECRET, bytes(range(200))])
def test_a_pseudonym_is_what_rfc_2104_says(key: bytes) -> None:
    assert identify(["Zürich"], E, key) == [by_hand(key, "entity\0Zürich".encode())]
    assert identify(["Zürich"], Axis.RELATION, key) == [by_hand(key, "relation\0Zürich".encode())]


def test_a_pseudonym_is_what_openssl_says() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    said = subprocess.run(
        ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{SECRET.hex()}", "-binary"],
        input=b"entity\0aspirin",
        stdout=subprocess.PIPE,
        check=True,
    )
    assert identify(["aspirin"], E, SECRET) == [said.stdout]


def test_a_fingerprint_is_no_pseudonym_and_tells_secrets_apart() -> None:
    assert fingerprint(SECRET) != fingerprint(SECRET + b"\n")
    assert not any(
        one.hex().startswith(fingerprint(SECRET)) for one in identify(["", "fingerprint"], E, SECRET)
    )


# Who shares what, against the obvious way


def spelt(sites: dict[str, Graph]) -> dict[str, Graph]:
    """The same federation under names that a is used to spell in another way."""
    return {
        site: replace(
            graph,
            entities=Names(
                [
                    unicodedata.normalize(
                        "NFD" if site == "a" else "NFC", f"http://{'X' if site == 'a' else 'x'}/é{n}"
                    )
                    for n in graph.entities
                ]
            ),
        )
        for site, graph in sites.items()
    }


def test_the_hub_finds_the_intersection_and_counts_pairs(tmp_path: Path, secret: dict[str, Any]) -> None:
    at = ByHand(tmp_path / "run", spelt(SITES), **FEDEP, **secret)
    at.until(question("train", 1))
    owners = Counter(name for graph in SITES.values() for name in set(graph.entities))
    for name, node in at.run.sites.items():
        own = SITES[name].entities
        expected = {own.id(one) for one in own if owners[one] > 1}
        assert set(node.site.shared[E].local.tolist()) == expected
        (event,) = at.noted(name, "aligned")
        pairs = sum(owners[one] == 2 for one in own)
        assert event["rows"]["entity"] == {"own": len(own), "shared": len(expected), "by_two": pairs}
    (event,) = at.noted(HUB, "aligned")
    found = [count for count in owners.values() if count > 1]
    assert event["rows"]["entity"] == {"shared": len(found), "by_two": found.count(2)}
    assert event["exposed"][0].startswith(
        f"{found.count(2)} of {len(found)} shared entities are at exactly two"
    )
    assert event["sites"] == ["a", "b", "c"]


def test_spelling_changes_nothing(tmp_path: Path, secret: dict[str, Any]) -> None:
    """What sites call their things is all that counts: the tables are equal, bit by bit."""
    common = {
        site: replace(g, entities=Names([f"http://x/é{n}" for n in g.entities])) for site, g in SITES.items()
    }
    one, two = (played(tmp_path / str(i), f, **FEDEP, **secret) for i, f in enumerate((spelt(SITES), common)))
    a, b = rows(one), rows(two)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_site_alone_has_the_ids_that_it_has_among_others(tmp_path: Path, secret: dict[str, Any]) -> None:
    links = tmp_path / "same.tsv"
    links.write_text("e1\te30\ne2\tunknown\nunknown\te35\n")
    one: Experiment = experiment(**FEDEP, align={**secret["align"], "entities": str(links)})
    together = Sources.of(one, SITES)
    for site, graph in SITES.items():
        alone = Sources.of(one, {site: graph})
        mine = alone.identity(one, alone.members(one)[site])
        assert mine.fingerprint == fingerprint(SECRET)
        assert mine.ids == together.identity(one, together.members(one)[site]).ids


# What a hub that knows the seed and a dictionary can find out


DICTIONARY = [f"e{i}" for i in range(100)]


def guesses(
    uploads: Sequence[Message], one: Experiment, guess: Callable[[Sequence[str]], list[bytes]]
) -> list[str]:
    """For each row of a first upload the word of the dictionary whose first row is the nearest."""
    keys = torch.from_numpy(byte_keys(guess(DICTIONARY)).view(np.int64))
    first = Tables.create(one.model, keys, keys[:0], one.seed).entities
    (upload,) = uploads
    return [DICTIONARY[i] for i in torch.cdist(upload.body["entity.values"], first).argmin(1).tolist()]


def hits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    guess: Callable[[Sequence[str]], list[bytes]],
    by_name: bool = False,
) -> float:
    """How many rows of site a's first upload are matched to their names; `by_name`: these are their keys."""
    if by_name:
        made = simulate.stacks

        def keyed(terms: Any, members: Any, ids: Any, *rest: Any) -> Any:
            names = {n: {E: m.graph.entities, Axis.RELATION: m.graph.relations} for n, m in members.items()}
            plain = {n: {axis: identify(own, axis) for axis, own in of.items()} for n, of in names.items()}
            return made(terms, members, plain, *rest)

        monkeypatch.setattr(simulate, "stacks", keyed)
    sent: list[Message] = []
    run = federated(tmp_path, SITES, tap=sent.append, **FEDEP, rounds=1, **options)
    run.play()
    first = [m for m in sent if (m.sender, m.kind, m.round) == ("a", "upload", 1)]
    found = guesses(first, run.experiment, guess)
    true = [SITES["a"].entities[i] for i in run.sites["a"].site.shared[E].local.tolist()]
    return sum(a == b for a, b in zip(found, true, strict=True)) / len(true)


def names_of(words: Sequence[str]) -> list[bytes]:
    return identify(words, E)


def test_first_rows_by_name_give_names_away_and_by_pseudonym_they_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: dict[str, Any]
) -> None:
    def leaked(words: Sequence[str]) -> list[bytes]:
        return identify(words, E, SECRET)

    def guessed(words: Sequence[str]) -> list[bytes]:
        return identify(words, E, b"another secret that is as long")

    assert hits(tmp_path / "pseudonyms", monkeypatch, secret, names_of) <= 0.1
    assert hits(tmp_path / "guessed", monkeypatch, secret, guessed) <= 0.1
    assert hits(tmp_path / "leaked", monkeypatch, secret, leaked) >= 0.9, "a secret must not leak"
    assert hits(tmp_path / "names", monkeypatch, secret, names_of, by_name=True) >= 0.9, "the attack works"


def test_the_hub_warns_before_rows_travel(
    tmp_path: Path, secret: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    played(tmp_path / "means", SITES, **FEDEP, **secret)
    assert "note: 4 of 14 shared entities are at exactly two sites" in capsys.readouterr().err
    played(tmp_path / "alone", SITES, method={"name": "single"}, **secret)
    assert "exactly two" not in capsys.readouterr().err


def test_no_message_has_a_name_in_it(tmp_path: Path, secret: dict[str, Any]) -> None:
    sites = {
        site: replace(graph, entities=Names([f"patient {n}" for n in graph.entities]))
        for site, graph in SITES.items()
    }
    sent: list[Message] = []
    federated(tmp_path / "with", sites, tap=sent.append, **FEDEP, **secret).play()
    assert b"patient" not in b"".join(map(encode, sent))
    sent.clear()
    federated(tmp_path / "without", sites, tap=sent.append, **FEDEP).play()
    assert b"patient" in b"".join(map(encode, sent)), "without a secret the hub is told names"


# Sites that are not of one mind


def test_a_secret_can_be_changed_for_a_new_run_that_goes_on(tmp_path: Path, secret: dict[str, Any]) -> None:
    """Sites begin with the tables that they kept, share what they shared, and have other ids."""
    one = experiment(**FEDEP, **secret)
    run(one, RunFolder.create(tmp_path / "first", one, resume=False), torch.device("cpu"), SITES)
    old = Sources.of(one, SITES)
    (tmp_path / "next").write_bytes(b"a secret of the second year")
    align = {"align": {"secret": str(tmp_path / "next")}}
    second = federated(tmp_path / "second", SITES, **FEDEP, **align, start=str(tmp_path / "first"))
    for name, node in second.sites.items():
        before = RunFolder.open(tmp_path / "first").load_site(name)[0]
        assert torch.equal(node.site.tables.entities, before.entities)
        ids = old.identity(one, old.members(one)[name]).ids[E]
        assert not set(ids) & set(node.identity.ids[E])
    second.play()
    plain = played(tmp_path / "plain", SITES, **FEDEP)
    for name, node in second.sites.items():
        assert set(node.site.shared[E].local.tolist()) == set(plain.sites[name].site.shared[E].local.tolist())


def test_a_run_does_not_go_on_under_another_secret(tmp_path: Path, secret: dict[str, Any]) -> None:
    run = federated(tmp_path / "run", SITES, **FEDEP, **secret)
    run.play(until=lambda round: round == 3)
    run.save(2)
    Path(secret["align"]["secret"]).write_bytes(b"a secret of the second year")
    again = federated(tmp_path / "run", SITES, **FEDEP, **secret)
    with pytest.raises(FedkgeError, match=r"a was refused: has another secret than b; expected .* a new run"):
        again.play()


def test_a_site_with_another_secret_is_told(tmp_path: Path, secret: dict[str, Any]) -> None:
    at = ByHand(tmp_path / "run", SITES, **FEDEP, **secret)
    c = at.run.sites["c"]
    c.identity = replace(c.identity, fingerprint=fingerprint(SECRET + b"\n"))
    at.mail.pop()
    at.mail.extend(c.open())
    at.play()
    (event,) = at.noted("c", "turned_down")
    assert event["why"].startswith("has another secret than a;")
    assert c.turned_down == event["why"]
    at.mail.extend(at.run.hub.expire(0))
    (event,) = at.noted(HUB, "failed")
    assert "c did not join: c was refused: has another secret" in event["why"]


def test_a_site_that_joins_later_aligns_while_others_go_on(tmp_path: Path, secret: dict[str, Any]) -> None:
    at = ByHand(tmp_path / "run", SITES, **FEDEP, **secret, participation={"open": True}, rounds=6)
    late = at.mail.pop()
    assert late.sender == "c"
    at.play()
    at.mail.extend(at.run.hub.expire(0))
    at.until(answer("upload", 2))
    before = set(at.run.sites["b"].site.shared[E].local.tolist())
    at.mail.appendleft(late)
    at.play()
    trained = {site: [event["round"] for event in at.noted(site, "trained")] for site in SITES}
    assert trained["a"] == trained["b"] == [1, 2, 3, 4, 5, 6], "once each, from the first to the last"
    assert trained["c"] == [3, 4, 5, 6]
    owners = Counter(name for graph in SITES.values() for name in graph.entities)
    for name, node in at.run.sites.items():
        expected = {i for i, one in enumerate(SITES[name].entities) if owners[one] > 1}
        assert set(node.site.shared[E].local.tolist()) == expected
    assert before < set(at.run.sites["b"].site.shared[E].local.tolist())
    assert [len(event["sites"]) for event in at.noted(HUB, "aligned")] == [2, 3]


# Announcements as nobody writes them


def pseudonymous(site: str, words: Sequence[str] = ("x", "y")) -> Message:
    body = announcement({E: sorted(identify(words, E, SECRET))})
    return noting(fingerprint=fingerprint(SECRET))(replace(joining(site), body=body))


def test_the_version_and_the_fingerprint_are_some_bytes() -> None:
    """ADR 0018 has these numbers. Headers are padded to 8 bytes, so that they depend on what else is said."""
    found: dict[str, set[int]] = {"join": set(), "with a secret": set(), "shared": set()}
    for site in ("s" * n for n in range(1, 17)):
        shared = Message(HUB, site, "shared", 0, {"entity.where": torch.zeros(9).byte()}, {"version": 0})
        told = {"join": joining(site), "with a secret": pseudonymous(site)}
        told["shared"] = replace(shared, note={"fedkge": "0.1.0", **shared.note})
        for name, message in told.items():
            note = {key: value for key, value in message.note.items() if key not in ("fedkge", "fingerprint")}
            older = replace(message, note=note)
            newer = replace(message, note=dict(message.note) | {"fedkge": "0.1.0"})
            found[name].add(length(newer) - length(older))
    assert found == {"join": {16, 24}, "with a secret": {56, 64}, "shared": {16, 24}}


def listed(*ids: bytes) -> Forge:
    return carrying(lambda body: announcement({E: ids}))


LOW, HIGH = b"\0" * PSEUDONYM, b"\1" * PSEUDONYM
FORGED: dict[str, tuple[Forge, str]] = {
    "a short one": (listed(LOW[1:]), "expected pseudonyms of 32 bytes"),
    "a long one": (listed(LOW, HIGH + b"\0"), "expected pseudonyms of 32 bytes"),
    "a name among them": (listed(LOW, b"aspirin"), "expected pseudonyms of 32 bytes"),
    "one twice": (listed(LOW, LOW), "expected each once"),
    "not in order": (listed(HIGH, LOW), "in increasing order"),
    "too many": (listed(LOW, HIGH, b"\2" * PSEUDONYM), "3, expected at most 2 (participation.most)"),
    "names": (noting(fingerprint=None), "announces names, expected pseudonyms"),
    "a broken fingerprint": (noting(fingerprint="0" * 15), "expected 16 hexadecimal digits"),
    "a fingerprint in capitals": (noting(fingerprint="A" * 16), "expected 16 hexadecimal digits"),
    "a number": (noting(fingerprint=7), "fingerprint: 7"),
    "another secret": (noting(fingerprint="0" * 16), "has another secret than b"),
    "of a round": (about(round=1), "joins in round 1"),
}


def new_hub(**participation: Any) -> Any:
    at = hub(most=2, **participation)
    at.pseudonyms = True
    return at


@pytest.mark.parametrize(("forge", "why"), FORGED.values(), ids=FORGED.keys())
def test_forged_pseudonyms_are_refused(forge: Forge, why: str) -> None:
    at = new_hub()
    at.receive(pseudonymous("b"))
    before = at.digest()
    (told,) = at.read(encode(forge(pseudonymous("a"))))
    (event,) = events(at, "refused")
    assert why in event["why"]
    assert (told.kind, told.recipient, told.note) == ("refusal", "a", {"why": event["why"]})
    assert at.digest() == before
    at.receive(pseudonymous("a"))
    assert {message.kind for message in at.receive(pseudonymous("c"))} == {"shared", "train"}


def test_pseudonyms_after_the_phase_are_refused() -> None:
    at = new_hub(sites=("a", "b"))
    at.receive(pseudonymous("a"))
    assert at.receive(pseudonymous("b"))
    (told,) = at.receive(pseudonymous("a", ("x", "z")))
    assert "announces other rows" in told.note["why"]
    assert "participation.open is false" in told.note["why"]


SHARED: dict[str, tuple[Forge, str]] = {
    "no counts": (noting(by_two=None), "by_two: None"),
    "counts of nothing": (noting(by_two={}), "by_two: {}"),
    "counts of relations": (noting(by_two={"relation": 1}), "by_two: {'relation': 1}"),
    "a count below zero": (noting(by_two={"entity": -1}), "by_two.entity: -1"),
    "a count beyond": (noting(by_two={"entity": 11}), "11 entity rows, expected at most 10"),
    "another release": (noting(fedkge="2.0"), "runs fedkge '2.0'"),
}


@pytest.mark.parametrize(("forge", "why"), SHARED.values(), ids=SHARED.keys())
def test_a_site_refuses_forged_counts(tmp_path: Path, secret: dict[str, Any], forge: Forge, why: str) -> None:
    at = ByHand(tmp_path / "run", SITES, **FEDEP, **secret)
    told, node = at.until(question("shared", 0)), at.run.sites["a"]
    before = node.digest()
    assert node.read(encode(forge(told))) == []
    (event,) = at.noted("a", "refused")
    assert why in event["why"]
    assert node.digest() == before


def test_what_the_hub_keeps_of_secrets_lasts(tmp_path: Path, secret: dict[str, Any]) -> None:
    at = ByHand(tmp_path / "run", SITES, **FEDEP, **secret)
    at.until(question("train", 2))
    tensors, plain = at.run.hub.state()
    again = HubNode(at.run.experiment, SITES, pseudonyms=True)
    again.load_state(tensors, plain)
    assert {one.fingerprint for one in again.roster.joined.values()} == {fingerprint(SECRET)}
    assert again.roster.exposures() == at.run.hub.roster.exposures()
