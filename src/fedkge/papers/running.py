"""Run what is missing: one run after another, or in lanes that share a device, until the time is up."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkge.errors import FedkgeError
from fedkge.machine import threads, use_threads
from fedkge.papers.catalogue import Job
from fedkge.papers.records import Record, taken

if TYPE_CHECKING:
    from fedkge.runs.data import Loader
    from fedkge.runtimes.progress import Progress, Watch

WAIT = 0.5  #: seconds between two looks at lanes


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


def _side_by_side(jobs: Sequence[Job], how: How, lanes: int) -> Iterator[Outcome]:
    """Each lane is a process that takes one run after another; a signal is passed on to all of them."""
    from multiprocessing import get_context

    from fedkge.runtimes.signals import on_signals

    context = get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for job in jobs:
        todo.put(job)
    workers = [
        context.Process(target=_lane, args=(todo, done, how, max(1, threads() // lanes)), daemon=False)
        for _ in range(min(lanes, len(jobs)))
    ]
    for worker in workers:
        worker.start()

    def asked(number: int) -> None:
        for worker in workers:
            if worker.is_alive() and worker.pid is not None:
                os.kill(worker.pid, signal.SIGTERM)

    with on_signals(asked):
        while True:
            alive = any(worker.is_alive() for worker in workers)
            try:
                yield done.get(timeout=WAIT)
            except Empty:
                if not alive:
                    break
    todo.cancel_join_thread()
    for worker in workers:
        worker.join()
        if worker.exitcode not in (0, -signal.SIGTERM):
            print(f"error: a lane ended with exit code {worker.exitcode}", file=sys.stderr)


def _lane(todo: Any, done: Any, how: How, count: int) -> None:
    """Runs in a process of its own, away from the terminal's signals."""
    os.setsid()
    use_threads(count)
    from fedkge.front.progress import progress
    from fedkge.runs.data import Loader

    loader = Loader()

    def queued() -> Iterator[Job]:
        while True:
            try:
                yield todo.get(timeout=WAIT)
            except Empty:
                return

    for job in queued():
        for outcome in _one_by_one([job], how, loader, progress):
            done.put(outcome)
            if outcome.record is None and not outcome.failure:
                return
        if how.over:
            return
