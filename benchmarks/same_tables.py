"""Checks that two commits train the same tables: both do a matrix of small runs, compared to the bit.

    python benchmarks/same_tables.py --old COMMIT [--new COMMIT|.] [--only PATTERN] [--processes] [--keep DIR]

The script uses only the command line and the run folders, because everything else may change between the
commits. Each commit runs on one thread, in a process of its own. Keys of private noise are fixed: the script
replaces `fedkge.training.secret.Secret.new`. `--new .` takes the files of the working tree as they are.
`--processes` runs the new commit a second time, with the hub and the sites as separate processes.

`--only` takes wildcards, as in `'fedlu-*'`, and may be repeated. `--keep` keeps run folders, logs and
compiled kernels; a later call with the same folder reuses the runs of the old commit.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file
from torch import Tensor

Options: TypeAlias = dict[str, Any]  #: dotted name of an option, as in codec.delta -> its value

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300  #: seconds that a run may take
#: options with another name in the new commit: old name -> new name
RENAMED = {"method.aggregate": "method.measure_hub"}
PROCESSES = 'runtime={name="processes"}'
COMPARED = ("metrics", "courses", "best_round", "rounds")  #: of summary.json
TABLES = ("entities.safetensors", "relations.safetensors", "ranks.safetensors")

BASE: Options = {
    "rounds": 6,
    "data.path": "../data/federation",
    "model.name": "transe",
    "model.dim": 16,
    "model.margin": 4.0,
    "trainer.epochs": 2,
    "trainer.batch_size": 64,
    "trainer.negatives": 8,
    "trainer.lr": 0.01,
    "evaluate.every": 2,
    "evaluate.patience": 0,
}

# Every Python that a lane starts imports this, also one that fedkge starts. Report pages are not compared and
# take longer than the runs; fedkge leaves them out where plotly is missing.
SITECUSTOMIZE = '''
import sys
from importlib.machinery import PathFinder

class FixedKeys:
    """Finds `fedkge.training.secret`, and replaces how it makes keys."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "fedkge.training.secret":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                module.Secret.new = classmethod(lambda cls: cls(b"same tables".ljust(32)))

            spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, FixedKeys)
sys.modules["plotly"] = None
'''

# Runs many commands in one process, because imports take longer than a run. Reads a line of JSON per command.
DRIVER = """
import json, os, sys, traceback

jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a command must not read the jobs
source = sys.argv[1]
for line in jobs:
    job = json.loads(line)
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1), os.dup2(log, 2), os.close(log)
    try:
        import fedkge
        from fedkge.cli.main import app

        assert fedkge.__file__.startswith(source), f"{fedkge.__file__} is not of {source}"
        status = app(job["command"], standalone_mode=False) or 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush(), sys.stderr.flush()
    print(json.dumps(status), file=answers)
"""


def methods() -> Iterator[tuple[str, Options]]:
    """Every method, with the options that make it another algorithm."""
    yield "single", {}
    yield "single-restart", {"restart": True}
    for name in ("collective", "fede", "fedep", "fedepl", "fedprox", "fedec", "fedr", "feds", "fedkd"):
        yield name, {}
    yield "fede-both", {"share": "both"}
    yield "fedep-both", {"share": "both"}
    yield "fedep-no-restart", {"restart": False}
    yield "fedprox-norm", {"mu": 0.01, "squared": False}
    yield "fedec-ensemble", {"ensemble": 0.5}
    yield "feds-first", {"p": 0.5, "s": 2, "first": 1}
    yield "fedternary", {}
    yield "svdplus", {}
    yield "svdplus-rank-1", {"rank": 1}
    for affinity in ("cosine", "cosine-mean", "jaccard", "uniform"):
        yield f"pfedeg-{affinity}", {"affinity": affinity}
    yield "pfedeg-reg", {"initialise": False, "beta": 0.01}
    yield "fedlu", {}
    yield "fedlu-plateau", {"when": "plateau", "wait": 2}
    yield "fedlu-local", {"relations": "local", "aggregate": False}
    yield "fedlu-both", {"share": "both", "restart_global": False}


def exchanges() -> Iterator[tuple[str, Options]]:
    """Every codec and every selection, and some together; a method's name comes before these names."""
    yield "-float32", {"codec.name": "float32"}
    for codec in ("float16", "bfloat16", "int8", "int4", "ternary", "svd"):
        lossy: Options = {"codec.name": codec} | ({"codec.rank": 1} if codec == "svd" else {})
        for feedback in (False, True):
            for delta in (False, True):
                name = f"-{codec}{'-feedback' * feedback}{'-delta' * delta}"
                yield name, {**lossy, "codec.feedback": feedback, "codec.delta": delta}
    for select in ("topk", "moved"):
        some: Options = {"select.name": select, "select.p": 0.4}
        some |= {"select.mass": 0.2} if select == "moved" else {}
        yield f"-{select}", some
        yield f"-{select}-s", {**some, "select.s": 2}
        yield f"-{select}-int8", {**some, "codec.name": "int8"}
        yield f"-{select}-s-ternary", {**some, "select.s": 2, "codec.name": "ternary", "codec.delta": True}
    yield "-full", {"select.name": "full"}


def participations() -> Iterator[tuple[str, Options]]:
    """Rounds with some of the sites, with lost answers, and with answers that come too late."""
    half: Options = {"participation.fraction": 0.5}
    lost: Options = {"participation.dropout": 0.3, "seed": 34}  # this seed loses answers in rounds 1, 3, 5
    topk: Options = {"select.name": "topk", "select.s": 2}
    delta: Options = {"codec.name": "int8", "codec.delta": True}
    yield "-three", {"participation.fraction": 0.75}
    for name, options in (("-half", half), ("-dropout", lost), ("-half-dropout", half | lost)):
        yield name, options
        yield f"{name}-last", {**options, "method.absent": "last"}
        yield f"{name}-topk", options | topk
        yield f"{name}-topk-last", {**options, **topk, "method.absent": "last"}
        yield f"{name}-delta", options | delta
    for late in ("refuse", "use"):
        quorum: Options = {"participation.quorum": 0.5, "participation.late": late}
        yield f"-quorum-{late}", quorum
        yield f"-quorum-{late}-dropout", quorum | lost
        yield f"-quorum-{late}-dropout-delta", quorum | lost | delta
        yield f"-quorum-{late}-topk", quorum | topk
        yield f"-quorum-{late}-most", {**quorum, **lost, "participation.quorum": 0.75}


def private() -> Iterator[tuple[str, Options]]:
    """Private training by several methods and in every mode."""
    marked: Options = {"marks.share": 0.5, "privacy.mode": "strict"}
    noisy: Options = {**marked, "privacy.noise": 1.0, "privacy.delta": 1e-5, "privacy.accountant": "rdp"}
    strict: Options = {**noisy, "privacy.clip": 0.5, "privacy.lr": 0.002}
    paper: Options = {"privacy.mode": "paper", "privacy.accountant": "rdp-paper"}
    for method in ("single", "fedep", "fedlu", "fedprox"):
        yield f"{method}-strict", {"method.name": method, **strict}
    budget: Options = {**strict, "privacy.epsilon": 12.0, "evaluate.every": 6}  # ends in round 4
    yield "fedep-strict-epsilon", {"method.name": "fedep", **budget}
    yield "fedlu-strict-epsilon", {"method.name": "fedlu", **budget}
    yield "single-strict-epsilon", {"method.name": "single", **budget}
    yield "fedep-strict-half", {"method.name": "fedep", **strict, "participation.fraction": 0.5}
    yield "fedep-strict-sgd", {"method.name": "fedep", **noisy, "trainer.optimizer": "sgd", "trainer.lr": 0.5}
    yield "fedep-fulldp", {"method.name": "fedep", **strict, "privacy.mode": "fulldp", "evaluate.every": 6}
    yield "fedep-paper", {"method.name": "fedep", **noisy, **paper}
    yield "fedep-u-only", {"method.name": "fedep", "marks.share": 0.5, "privacy.mode": "u-only"}


def others() -> Iterator[tuple[str, Options]]:
    """Runs that keep or stop otherwise, have links, start from another run, or have other models."""
    for method in ("single", "fede", "fedep", "fedlu", "fedkd"):
        yield f"{method}-each", {"method.name": method, "evaluate.keep": "each", "trainer.lr": 0.1}
        stops: Options = {"rounds": 12, "evaluate.every": 1, "evaluate.patience": 1, "trainer.lr": 0.1}
        yield f"{method}-stops", {"method.name": method, **stops}
    yield "fedep-drops", {"method.name": "fedep", **stops, "evaluate.rule": "drops", "evaluate.sides": "tail"}
    links: Options = {"align.entities": "../data/links.tsv", "align.relations": "../data/relations.tsv"}
    for method in ("fede", "fedep", "fedlu", "pfedeg"):
        both: Options = {} if method == "pfedeg" else {"method.share": "both"}
        yield f"{method}-links", {"method.name": method, **links, **both}
        yield f"{method}-links-only", {"method.name": method, **links, "align.names": False}
    for method in ("single", "fedep", "fedlu", "fedkd", "pfedeg"):
        yield f"{method}-after-single", {"method.name": method, "start": "single"}
    yield "single-after-fedlu", {"method.name": "single", "start": "fedlu", "trainer.lr": 0.001}
    yield "fedep-after-fede-each", {"method.name": "fedep", "start": "fede", "evaluate.keep": "each"}
    for model in ("rotate", "complex"):
        for method in ("fedep", "fedlu", "fedr"):
            yield f"{method}-{model}", {"method.name": method, "model.name": model}
    for optimizer, lr in (("adagrad", 0.05), ("sgd", 1.0), ("row-adam", 0.01)):
        steps: Options = {"trainer.optimizer": optimizer, "trainer.lr": lr}
        yield f"fedep-{optimizer}", {"method.name": "fedep", **steps}


def matrix() -> dict[str, Options]:
    """Every run by its name, with the options that it adds to `BASE`."""
    found: dict[str, Options] = {}
    for name, own in methods():
        named = {"name": name.partition("-")[0], **own}
        found[name] = {f"method.{option}": value for option, value in named.items()}
    for method in ("fedep", "fedlu"):
        found |= {f"{method}{name}": {"method.name": method, **own} for name, own in exchanges()}
        found |= {f"{method}{name}": {"method.name": method, **own} for name, own in participations()}
    for name in ("-half", "-half-topk", "-dropout", "-topk-s", "-int8-delta"):
        found[f"pfedeg{name}"] = found[f"fedep{name}"] | {"method.name": "pfedeg"}
    return found | dict(private()) | dict(others())


def chosen(runs: Mapping[str, Options], patterns: list[str]) -> dict[str, Options]:
    """The runs that match any of the patterns, and the runs that they start from."""
    names = {name for name in runs if any(fnmatchcase(name, pattern) for pattern in patterns)}
    names |= {runs[name]["start"] for name in names if "start" in runs[name]}
    return {name: options for name, options in runs.items() if name in names}


def write_data(folder: Path) -> None:
    """Write a federation of four sites, and links between them; the files are the same on every machine.

    The entities form a ring, and each relation leads from an entity to some that are a few steps ahead: a
    pattern that takes several rounds to learn. Entities are at one to four sites. The site `west` is small.
    """
    owners = ["north south east west", "north south east", "north south", "south east", "north east"]
    owners += ["north", "south", "east"]
    relations = {"north": (0, 1, 2, 4), "south": (0, 1, 2, 5), "east": (0, 1, 3), "west": (0, 3)}
    for seed, (site, steps) in enumerate(relations.items()):
        own = [i for i in range(96) if site in owners[i % 8].split() or (site == "west" and i % 32 in (5, 7))]
        ahead = [(h, k, (h + 7 * k + 3 + far) % 96) for h in own for k in steps for far in range(6)]
        triples = [f"e{h:02}\tr{k}\te{t:02}\n" for h, k, t in ahead if t in own]
        random.Random(seed).shuffle(triples)
        held = len(triples) // 10
        parts = {"valid": triples[:held], "test": triples[held : 2 * held], "train": triples[2 * held :]}
        for split, lines in parts.items():
            file = folder / "federation" / site / f"{split}.tsv"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(lines))
    links = [(a, f"e{i:02}", b, f"e{i:02}") for a, b in pairwise(relations) for i in range(0, 96, 8)]
    links += [("north", f"e{i:02}", "south", f"e{i + 1:02}") for i in range(5, 96, 8)]
    (folder / "links.tsv").write_text("".join("\t".join(link) + "\n" for link in links))
    (folder / "relations.tsv").write_text("r0\tr0\nr4\tr5\n")


def toml(options: Mapping[str, Any]) -> str:
    """Options as dotted keys. Strings, numbers and booleans are the same in TOML and JSON."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())


def git(*arguments: str) -> bytes:
    """What git prints. If it fails, its own message is the last."""
    done = subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(2)
    return done.stdout


def checked_out(commit: str, folder: Path) -> Path:
    """Copy the sources of a commit, or of a working tree as it is now, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    if (Path(commit) / "src" / "fedkge").is_dir():
        shutil.copytree(Path(commit) / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    else:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src"))) as files:
            files.extractall(folder, filter="data")
    return folder / "src"


@dataclass
class Lane:
    """Runs of one commit, one after the other. Its process is replaced if it dies or hangs."""

    folder: Path
    source: Path
    patches: Path  #: the folder of sitecustomize.py
    process: subprocess.Popen[str] | None = None
    queue: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def submit(self, name: str, config: str, *more: str, reuse: bool = False) -> Future[str | None]:
        """Queue a run. The result is None, or why it failed."""
        return self.queue.submit(self._run, name, config, more, reuse)

    def close(self) -> None:
        self.queue.shutdown(wait=False, cancel_futures=True)
        self._kill()

    def _run(self, name: str, config: str, more: tuple[str, ...], reuse: bool) -> str | None:
        run, file, log = (self.folder / f"{name}{suffix}" for suffix in ("", ".toml", ".log"))
        if reuse and (run / "summary.json").exists() and file.exists() and file.read_text() == config:
            return None
        shutil.rmtree(run, ignore_errors=True)
        file.write_text(config)
        log.unlink(missing_ok=True)
        command = ["run", file.name, "--out", name, "--device", "cpu", *more]
        self.process = process = self.process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(LIMIT, self._kill)
        late.start()
        begun = time.monotonic()
        with suppress(BrokenPipeError):
            print(json.dumps({"command": command, "log": str(log)}), file=process.stdin, flush=True)
        answer = process.stdout.readline().strip()
        late.cancel()
        if answer:
            return None if answer == "0" else _last_error(log) or f"exit status {answer}"
        self._kill()
        self.process = None
        why = f"over {LIMIT} s" if time.monotonic() - begun >= LIMIT else f"ended by {process.wait()}"
        return f"{why} {_last_error(log)}".strip()

    def _started(self) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(self.patches), str(self.source))),
            "NUMBA_CACHE_DIR": str(self.folder / "kernels"),
            "NUMBA_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-c", DRIVER, str(self.source)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _kill(self) -> None:
        """Kill the process, and the processes that it has started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def _last_error(log: Path) -> str:
    lines = log.read_text().splitlines() if log.exists() else []
    told = [line.strip() for line in lines if line.strip() and not line.startswith(("note:", "warning:"))]
    errors = [line for line in told if line.startswith("error:")]
    return (errors or told or [""])[-1]


def differences(old: Path, new: Path) -> list[str]:
    """How the new run differs from the old one. What only the new run has does not count."""
    files = sorted(path.relative_to(old) for path in (old / "sites").rglob("*") if path.name in TABLES)
    found = [] if files else ["no tables in the old run"]
    for file in files:
        if not (new / file).exists():
            found.append(f"{file} is missing")
            continue
        before, after = load_file(old / file), load_file(new / file)
        for name, tensor in before.items():
            if name not in after:
                found.append(f"{file}: {name} is missing")
            elif word := difference(tensor, after[name]):
                found.append(f"{file}: {word}")
    was, now = (json.loads((run / "summary.json").read_text()) for run in (old, new))
    for key in COMPARED:
        found += [f"summary.json: {word}" for word in unequal(was.get(key), now.get(key), key)]
    return found


def difference(old: Tensor, new: Tensor) -> str | None:
    """How two tensors differ; None if all bits are equal, so that NaN equals NaN."""
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"{new.dtype} {list(new.shape)}, was {old.dtype} {list(old.shape)}"
    before, after = (one.reshape(-1).contiguous().view(torch.uint8) for one in (old, new))
    if torch.equal(before, after):
        return None
    count = len(torch.atleast_1d(old))
    rows = int((before != after).reshape(count, -1).any(1).sum())
    largest = (old.double() - new.double()).abs().max()
    return f"{rows} of {count} rows, largest difference {largest:.3g}"


def unequal(old: Any, new: Any, where: str) -> Iterator[str]:
    """Every part of the old value that the new one lacks or changes."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from unequal(value, new.get(key), f"{where}.{key}")
    elif json.dumps(old) != json.dumps(new):  # as text, NaN equals NaN
        yield f"{where} {json.dumps(new)}, was {json.dumps(old)}"


def compared(failures: Mapping[str, str | None], old: Path, new: Path) -> str:
    """What to print about one run."""
    failed = [f"{side}: {why}" for side, why in failures.items() if why is not None]
    if failed:
        return f"failed: {'; '.join(failed)}"
    try:
        first, *more = differences(old, new) or [""]
    except Exception as error:  # an unreadable file is a difference and must not end the script
        return f"DIFFERENT: {error!r}"
    if not first:
        return "same"
    return f"DIFFERENT: {first}{f' (and {len(more)} more)' if more else ''}"


def compare(options: argparse.Namespace, runs: Mapping[str, Options], home: Path, stack: ExitStack) -> int:
    """Print a line per run, and return how many differ."""
    write_data(home / "data")
    (home / "patches").mkdir(exist_ok=True)
    (home / "patches" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    data = b"".join(file.read_bytes() for file in sorted((home / "data").rglob("*.tsv")))
    commit = git("rev-parse", "--short=12", f"{options.old}^{{commit}}").decode().strip()
    lanes = {}
    for side, name, what in (("old", f"old-{commit}", commit), ("new", "new", options.new)):
        (home / name).mkdir(exist_ok=True)
        source = checked_out(what, home / name / "tree")
        lanes[side] = stack.enter_context(closing(Lane(home / name, source, home / "patches")))
    waiting: list[tuple[str, str, Future[str | None], Future[str | None]]] = []
    for name, own in runs.items():
        given = {**BASE, **own}
        before = toml(runs[own["start"]]) if "start" in own else ""
        stamp = hashlib.sha256(data + before.encode()).hexdigest()  # a run is reused if this is the same too
        config = f"# {stamp}\n{toml(given)}"
        renamed = toml({RENAMED.get(option, option): value for option, value in given.items()})
        old = lanes["old"].submit(name, config, reuse=True)
        waiting.append((name, name, old, lanes["new"].submit(name, renamed)))
        alone = given["method.name"] == "collective" or given.get("participation.quorum", 1) < 1
        if options.processes and not alone:
            again = lanes["new"].submit(f"{name}.processes", renamed, "--set", PROCESSES)
            waiting.append((name, f"{name}.processes", old, again))
    differ, width = 0, max(len(label) for _, label, _, _ in waiting)
    for name, label, old, new in waiting:
        failures = {"old": old.result(), "new": new.result()}
        word = compared(failures, lanes["old"].folder / name, lanes["new"].folder / label)
        print(f"{label:<{width}}  {word}", flush=True)
        differ += word != "same"
    print(f"{len(waiting) - differ} same, {differ} different")
    return differ


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--old", required=True, help="a commit")
    parser.add_argument("--new", default="HEAD", help="a commit, or the folder of a working tree, as in .")
    parser.add_argument("--only", action="append", help="names of runs, with wildcards; unset: all")
    parser.add_argument("--processes", action="store_true", help="the new commit in processes too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a folder for the runs; unset: none")
    options = parser.parse_args()
    runs = chosen(matrix(), options.only or ["*"])
    if not runs:
        parser.error(f"--only: expected some of {' '.join(matrix())}")
    begun = time.monotonic()
    with ExitStack() as stack:
        home = options.keep
        if home is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        home.mkdir(parents=True, exist_ok=True)
        differ = compare(options, runs, home.resolve(), stack)
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
