"""Keeps NVIDIA FLARE running at the hub, and a stream to every site that is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from fedkge.errors import FedkgeError
from fedkge.exchange.rows import HUB
from fedkge.runtimes.engine import Administrator, Engine
from fedkge.runtimes.flare_files import write_job
from fedkge.runtimes.remote import Door, Remote

LOOK = 1.0  #: seconds between two looks at who is there
FAILURES = 3  #: times that FLARE's server may end before anyone was there
STARTING = 45.0  #: seconds that a job has to connect both ends before it is submitted again
SILENCE = 8.0  #: seconds without a packet and without a sign of life after which a site is taken for lost


class Steward(threading.Thread):
    """Keeps FLARE running, and a job for every site that is there and has no stream."""

    def __init__(
        self,
        engine: Engine,
        administrator: Administrator,
        remotes: Mapping[str, Remote],
        ended: threading.Event,
        door: Door,
        port: int,
    ) -> None:
        super().__init__(daemon=True)
        self.engine, self.administrator, self.remotes = engine, administrator, remotes
        self.ended, self.door, self.port = ended, door, port
        self.jobs: dict[str, tuple[str, float]] = {}  # site -> job, when it was submitted
        self.seen: dict[str, float] = dict.fromkeys(
            remotes, 0.0
        )  # when a site was last known to have a stream

    def run(self) -> None:
        failures = 0
        while not self.ended.is_set():
            if not self.engine.runs:
                self.engine.start()
            self.ended.wait(LOOK)
            try:
                self._look()
                failures = 0
            except FedkgeError as error:
                failures += not self.engine.runs
                if failures >= FAILURES and not self.ended.is_set():
                    why = f"{error}; {self.engine.said()}; see {self.engine.workspace}; is the port free?"
                    self.door.news.put((HUB, None, FedkgeError(f"hub: FLARE's server does not run: {why}")))
                    return

    def _look(self) -> None:
        if not self.engine.listens(self.port):
            raise FedkgeError(f"nobody listens on port {self.port}")
        online, now = self.administrator.online(), time.time()
        for site, remote in self.remotes.items():
            job, since = self.jobs.get(site, ("", 0.0))
            stream = remote.stream
            if stream is not None:
                self.seen[site] = now
                if max(online.get(site, 0.0), stream.link.last) < now - SILENCE:
                    stream.link.close()
                continue
            if (
                job
                and now - since < STARTING
                and since > max(self.seen[site], self.door.ended.get(site, 0.0))
            ):
                continue
            if online.get(site, 0.0) > self.seen[site]:
                if job:
                    self.administrator.abort(job)
                if self.ended.is_set():  # FLARE takes seconds to abort a job: the run may be over by now
                    return
                job = self.administrator.submit(write_job(self.administrator.workspace / "transfer", site))
                self.jobs[site] = (job, time.time())
