"""Run what is missing: one run after another, or in lanes that share a device, until the time is up."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedkge.errors import FedkgeError
from fedkge.machine import threads, use_threads
from fedkge.papers.catalogue import Job
from fedkge.papers.records import Record, taken

if TYPE_CHECKING:
    from fedkge.runs.data import Loader
    from fedkge.runtimes.progress import Progress, Watch

WAIT = 0.5  #: seconds between two looks at lanes
LEAVE = 30.0  #: seconds that a lane with nothing to do has to end


class Outcome(NamedTuple):
    """What became of a run: its record, why it failed, or neither where the time was up."""

    job: Job
    record: Record | None = None
    failure: str = ""


@dataclass(frozen=True)
class How:
    """Where and how long."""

    out: Path  #: the folder of all run folders
    device: str = "auto"
    until: float | None = None  #: the clock (`time.time`) at which runs are interrupted; None: never

    @property
    def over(self) -> bool:
        return self.until is not None and time.time() >= self.until


def check_data(jobs: Sequence[Job]) -> None:
    """An error that says where data comes from, before anything is begun; what can be downloaded is."""
    from fedkge.graphs.datasets import find, folder

    for name in dict.fromkeys(job.experiment().data.name for job in jobs):
        if name is not None:
            folder(find(name))


def run_all(
    jobs: Sequence[Job],
    how: How,
    lanes: int,
    progress: Callable[[str], AbstractContextManager[Watch]],
) -> Iterator[Outcome]:
    """The outcome of each run, as they end; runs that were not begun in time have none."""
    if lanes == 1:
        from fedkge.runs.data import Loader

        yield from _one_by_one(jobs, how, Loader(), progress)
    else:
        yield from _side_by_side(jobs, how, lanes)


def _one_by_one(
    jobs: Sequence[Job],
    how: How,
    loader: Loader,
    progress: Callable[[str], AbstractContextManager[Watch]],
) -> Iterator[Outcome]:
    for job in jobs:
        if how.over:
            return
        outcome = _run(job, how, loader, progress)
        yield outcome
        if outcome.record is None and not outcome.failure:
            return


def _run(
    job: Job, how: How, loader: Loader, progress: Callable[[str], AbstractContextManager[Watch]]
) -> Outcome:
    """Train a run, or go on with it; a run that has ended is only read."""
    from fedkge.front.training import device_named
    from fedkge.reports.folders.load import load_run
    from fedkge.runs.folder import RunFolder
    from fedkge.runtimes.loop import Interrupted
    from fedkge.runtimes.run import run

    experiment, path = job.experiment(), how.out / job.place
    try:
        begun = RunFolder.taken(path, experiment, resume=True)
        data = loader.load(experiment)
        if not (begun and (path / "summary.json").exists()):
            folder = RunFolder.create(path, experiment, begun)
            with progress(f"{job.row}, seed {job.seed}") as watch:
                run(experiment, folder, device_named(how.device), data, _until(how, watch))
        return Outcome(job, taken(load_run(path), job.protocol, job.name))
    except Interrupted:
        return Outcome(job)
    except FedkgeError as error:
        return Outcome(job, failure=str(error))


def _until(how: How, watch: Watch) -> Watch:
    """The same, which asks for the end when the time is up: the round is saved, and can be gone on from."""

    def told(at: Progress) -> None:
        watch(at)
        if how.over and at.round < at.rounds:
            signal.raise_signal(signal.SIGTERM)

    return told


# Lanes


class Lane:
    """A process that is handed one run after another, through a pipe that no other lane has a part in.

    Queues that lanes share have locks, and a lane that is killed may hold one of them for ever.
    """

    def __init__(self, how: How, count: int) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_lane, args=(other, how, count), daemon=False)
        self.process.start()
        other.close()  # the lane's is the only one: when it dies, this end hears so
        self.job: Job | None = None

    def begin(self, job: Job) -> None:
        """A lane that has died is found out when its outcome is asked for."""
        self.job = job
        with suppress(OSError):
            self.pipe.send(job)

    def outcome(self, asked_to_end: bool) -> Outcome:
        """Of its run, which has ended, or died with the lane."""
        job, self.job = self.job, None
        assert job is not None
        with suppress(EOFError, OSError):
            if self.pipe.poll():
                found: Outcome = self.pipe.recv()
                return found
        return Outcome(job) if asked_to_end else Outcome(job, failure=self._death())

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def leave(self) -> None:
        """A lane that waits for a run ends by itself; one that is under way is not waited for."""
        if self.job is not None:
            self.process.kill()
        self.pipe.close()
        self.process.join(LEAVE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _death(self) -> str:
        self.process.join(LEAVE)
        code = self.process.exitcode
        ended = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"its lane ended with {ended}; the same command goes on with it"


def _side_by_side(jobs: Sequence[Job], how: How, lanes: int) -> Iterator[Outcome]:
    """A lane that dies loses its run, and others go on; a signal ends all lanes, a second one at once."""
    from fedkge.runtimes.signals import on_signals

    todo, crew = deque(jobs), list[Lane]()
    signals = 0

    def asked(number: int) -> None:
        nonlocal signals
        signals += 1
        for lane in crew:
            if signals == 1:
                lane.process.terminate()
            else:
                lane.process.kill()

    with on_signals(asked):
        try:
            for _ in range(min(lanes, len(jobs))):
                crew.append(Lane(how, max(1, threads() // lanes)))
            while True:
                for lane in crew:
                    if lane.job is None and todo and not signals and not how.over and lane.alive:
                        lane.begin(todo.popleft())
                busy = [lane for lane in crew if lane.job is not None]
                if not busy:
                    return
                ready = wait([lane.pipe for lane in busy], WAIT)
                for lane in busy:
                    if lane.pipe in ready or not lane.alive:
                        yield lane.outcome(asked_to_end=bool(signals))
        finally:
            for lane in crew:
                lane.leave()


def _lane(pipe: Connection[Outcome, Job], how: How, count: int) -> None:
    """Runs in a process of its own, away from the terminal's signals, until there is nobody to tell."""
    os.setsid()
    use_threads(count)
    from fedkge.front.progress import progress
    from fedkge.runs.data import Loader

    loader = Loader()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        outcome = _run(job, how, loader, progress)
        with suppress(OSError):
            pipe.send(outcome)
