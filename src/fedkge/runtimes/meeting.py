"""All peers of a run in one process: messages are delivered in turn, and whoever has none does its work.

When no message is under way, nobody is in a conversation. All peers are saved together then, so that a run
that was interrupted goes on bit by bit. Only noise differs: it is never drawn twice.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fedkge.errors import ConfigError, FedkgeError
from fedkge.exchange.codec import Float32
from fedkge.exchange.rows import Message
from fedkge.exchange.tally import Tally, total
from fedkge.exchange.wire import length
from fedkge.methods.ends import Keys
from fedkge.nodes.base import Event, Setting
from fedkge.nodes.clock import Clock
from fedkge.nodes.journal import Journal, dated
from fedkge.nodes.making import check_terms, peer_node
from fedkge.nodes.result import read_result
from fedkge.nodes.store import Store
from fedkge.runs.account import account_of
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.loop import Tap
from fedkge.runtimes.progress import Progress, Watch, ignored
from fedkge.runtimes.rhythm import Rhythm
from fedkge.runtimes.simulate import Simulation
from fedkge.training.confidential import opened
from fedkge.training.secret import Secret

NAPS = 1000  #: times that everybody may wake without anybody having something to do


class PeerTally(Tally):
    """What each peer has sent, as it is on the wire; what one receives another has sent."""

    def __init__(self) -> None:
        super().__init__(Float32(), {})
        self.turn = 1  # of training rounds, as far as the peer that trains most has come

    def count(self, message: Message, again: bool = False, latest: int | None = None) -> None:
        numbers = sum(tensor.numel() for tensor in message.body.values() if tensor.is_floating_point())
        for sums in (self.sites[message.sender], self.rounds[self.turn][message.sender]):
            sums["up_bytes"] += length(message)
            sums["up_values"] += numbers


@dataclass
class MeetingRecord:
    """What happens at peers that are at hand: scores go into the run's journal, one line for each update."""

    journal: Journal
    rounds: int
    tally: PeerTally
    clock: Clock
    watch: Watch = ignored
    courses: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)  #: validation triples of each site
    ranks: bool = True  #: scores are MRRs, which curves are drawn of
    trained: dict[int, dict[str, Event]] = field(default_factory=dict)  #: by round and site

    def write_rounds(self) -> None:
        """When all have ended: what each site trained and sent up to each round that an update ended at."""
        for number in sorted(self.trained.keys() | self.tally.rounds.keys()):
            trained, sent = self.trained.get(number, {}), self.tally.round(number)
            sites: dict[str, dict[str, Any]] = {site: dict(sums) for site, sums in sent.items()}
            for site, event in trained.items():
                sites[site] = {**sites.get(site, {}), "loss": event["loss"]}
            sums = {name: sum(one[name] for one in trained.values()) for name in ("seconds", "triples")}
            self.journal.append(
                [dated({"event": "round", "round": number, **sums, "sites": sites, **total(sent.values())})]
            )

    def state(self) -> dict[str, Any]:
        """What a run that was interrupted must know of what went before."""
        self.clock.lap()
        return {
            "turn": self.tally.turn,
            "sent": {str(number): self.tally.round(number) for number in sorted(self.tally.rounds)},
            "scores": dict(self.scores),
            "trained": {str(number): dict(by) for number, by in self.trained.items()},
            "seconds": dict(self.clock.seconds),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.tally.turn, self.scores = state["turn"], dict(state["scores"])
        for number, sites in state["sent"].items():
            self.tally.add(int(number), sites)
        self.trained = {int(number): dict(by) for number, by in state["trained"].items()}
        self.clock.load(state["seconds"])

    def hear(self, node: str, event: Event) -> None:
        """Something has happened at a peer."""
        if event["event"] == "trained":
            self.trained.setdefault(int(event["round"]), {})[node] = event
        if event["event"] != "update":
            return
        self.scores[node] = event["best"]
        self.tally.turn = max(self.tally.turn, int(event["round"]))
        told = {k: event[k] for k in ("by", "talk", "round", "score", "best", "gained")}
        self.journal.append([dated({"event": "update", "site": node, **told})], sync=False)
        total = sum(self.weights[site] for site in self.scores)
        asked = {site: score for site, score in self.scores.items() if self.weights[site]}
        mean = sum(score * self.weights[site] for site, score in asked.items()) / max(1, total)
        if self.ranks:
            sites = {n: {"mrr": score, "count": self.weights[n]} for n, score in self.scores.items()}
            found = {
                "event": "evaluate",
                "split": "valid",
                "round": self.tally.turn,
                "mrr": mean,
                "sites": sites,
            }
            self.journal.append([dated(found)], sync=False)
        sent = sum(one["up_bytes"] for one in self.tally.sites.values())
        last = self.trained.get(int(event["round"]), {}).get(node)
        loss, speed = (
            (None, 0.0) if last is None else (last["loss"], last["triples"] / max(1e-9, last["seconds"]))
        )
        self.watch(Progress(min(self.tally.turn, self.rounds), self.rounds, loss, mean, speed, sent))


class Meeting:
    """Peers in one process, from their last common checkpoint on."""

    def __init__(
        self,
        experiment: Experiment,
        sources: Sources,
        folder: RunFolder,
        device: torch.device,
        how: Simulation = Simulation(),  # noqa: B008 - frozen
        watch: Watch = ignored,
        tap: Tap | None = None,
    ) -> None:
        method = check_terms(experiment)
        if experiment.runtime.name != "simulate":
            raise ConfigError(
                "runtime.name: peers as processes are started with `fedkge peer`; expected simulate"
            )
        self.experiment, self.how, self.tap, self.start = experiment, how, tap, None
        self.members = sources.members(experiment)
        if len(self.members) < 2:
            raise ConfigError("method: fkge needs at least two sites, which talk to each other")
        self.clock, self.folder = Clock(), folder
        weights = {n: len(opened(m.graph, experiment.privacy).valid) for n, m in self.members.items()}
        self.record = MeetingRecord(
            folder.journal,
            experiment.rounds,
            PeerTally(),
            self.clock,
            watch,
            weights=weights,
            ranks=method.judge == "mrr",
        )
        run = folder.begin({name: member.graph.digest() for name, member in self.members.items()})
        self.peers = {
            name: peer_node(
                name,
                experiment,
                member,
                sources.identity(experiment, member),
                list(self.members),
                Keys(simulated_secret(experiment.seed, name), Secret.new()),  # of two ends, no noise is alike
                Setting(
                    run,
                    folder.home(name, member),
                    tables=how.tables,
                    tell=self.record.hear,
                    clock=self.clock,
                    account=account_of(experiment, name),
                ),
                device,
                how.captured,
            )
            for name, member in self.members.items()
        }
        self.store = Store(folder.path)  # of what was sent and measured so far
        self.saves = self._last_common()
        if self.saves:
            for peer in self.peers.values():
                peer.resume(self.saves)
            self.record.load(self.store.load(self.saves)[1])
        self.round = max(peer.own.rounds for peer in self.peers.values())

    def play(self) -> None:
        """Deliver what there is, in the order in which it was said; then let everybody do one thing."""
        first = [] if self.saves else [message for peer in self.peers.values() for message in peer.open()]
        mail, naps, rhythm = deque(first), 0, Rhythm(self.how.save_every)
        while not all(peer.stopped for peer in self.peers.values()):
            while mail:
                message = mail.popleft()
                self._sent(message)
                mail += self.peers[message.recipient].receive(message)
            if rhythm.due:
                with rhythm.saving():
                    self.save()
            said = [message for peer in self.peers.values() for message in peer.work()]
            mail += said
            if not said and not mail:
                naps += 1
                if naps > NAPS:
                    raise FedkgeError("peers wait for each other and nobody has anything to say")
                mail += [message for peer in self.peers.values() for message in peer.expire(0)]
        self.save()
        self.record.write_rounds()
        for name, member in self.members.items():
            found = read_result(self.folder.home(name, member))
            self.record.courses[name] = {
                "rounds": found["rounds"],
                "best_round": found["peer"]["best_round"],
                "best_rounds": {},
            }

    def save(self) -> None:
        """All peers under one number, unless somebody waits for an answer that will not come."""
        peers = list(self.peers.values())
        if any(peer.shakes.talk or peer.shakes.calling for peer in peers):
            return
        self.saves += 1
        for peer in peers:
            peer.save(self.saves)
        if self.how.tables:
            with self.clock.spending("checkpoint"):
                self.store.save(self.saves, {}, self.record.state(), sync=False)
                os.sync()
            for store in self._stores():
                store.forget(self.saves)

    def _stores(self) -> list[Store]:
        return [self.store, *(peer.store for peer in self.peers.values() if peer.store is not None)]

    def _last_common(self) -> int:
        """The last number that all have checkpoints of; 0 if there is none."""
        return max(set.intersection(*(set(store.rounds()) for store in self._stores())), default=0)

    def _sent(self, message: Message) -> None:
        self.record.tally.count(message)
        if self.tap is not None:
            self.tap(message)


def simulated_secret(seed: int, name: str) -> Secret:
    """In one process nobody has anything to hide; a run with the same seed is the same."""
    return Secret(hashlib.blake2b(f"{seed} {name} peer".encode(), digest_size=32).digest())
