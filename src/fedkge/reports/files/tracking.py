"""A run in the forms of experiment trackers, from its journal: TensorBoard, MLflow, Weights & Biases offline.

The files of TensorBoard and MLflow are written here, without these packages. Scalars are named alike in all
three: `valid/mrr`, `sent/bytes`, `seconds/round`, and by site `sites/SITE/loss`, `sites/SITE/valid/mrr`.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from fedkge.durable import privately
from fedkge.errors import DataError, MissingPackage
from fedkge.reports.folders.load import CONFIG, events
from fedkge.reports.folders.options import NAME, flat, without_places


@dataclass(frozen=True)
class Scalar:
    """A number of a round."""

    name: str
    value: float
    round: int
    time: float  #: seconds since 1970


def scalars(run: Path) -> Iterator[Scalar]:
    """What the journal tells so far, in its order; a round that is done again is told again."""
    for event in events(run):
        time, round = float(event.get("time") or 0.0), int(event.get("round") or 0)
        for name, value in _numbers(event):
            if isinstance(value, int | float) and isfinite(value):
                yield Scalar(name, float(value), round, time)


def _numbers(event: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    kind = event.get("event")
    if kind == "round":
        for site, found in event["sites"].items():
            yield f"sites/{site}/loss", found.get("loss")
        yield "sent/bytes", event.get("up_bytes", 0) + event.get("down_bytes", 0)
        yield "seconds/round", event.get("seconds")
    elif kind == "evaluate":
        yield f"{event['split']}/mrr", event.get("mrr")
        for site, metrics in event["sites"].items():
            for name, value in metrics.items():
                yield f"sites/{site}/{event['split']}/{name}", value


def called(run: Path, options: Mapping[str, Any]) -> str:
    """The name of a run, or else of its folder."""
    return str(options.get(NAME) or run.resolve().name)


class Tracker(Protocol):
    """Where scalars go."""

    def add(self, scalar: Scalar) -> None:
        """Take the next one."""

    def close(self) -> None:
        """The run has ended, or nobody waits for more."""


class TensorBoard:
    """An event file, as TensorFlow writes it: records with checksums, each a message of protocol buffers."""

    def __init__(self, folder: Path, run: Path, options: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        started = next((int(s.time) for s in scalars(run)), 0)
        self.file = (folder / f"events.out.tfevents.{started}.{run.resolve().name}").open("wb")
        self._write(_double(1, float(started)) + _bytes(3, b"brain.Event:2"))

    def add(self, scalar: Scalar) -> None:
        value = _bytes(1, scalar.name.encode()) + _float(2, scalar.value)
        summary = _bytes(5, _bytes(1, value))
        self._write(_double(1, scalar.time) + _varint(2, scalar.round) + summary)

    def close(self) -> None:
        self.file.close()

    def _write(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        parts = (length, struct.pack("<I", masked(length)), data, struct.pack("<I", masked(data)))
        self.file.write(b"".join(parts))
        self.file.flush()


def _key(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _double(number: int, value: float) -> bytes:
    return _key(number, 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _key(number, 5) + struct.pack("<f", value)


def _varint(number: int, value: int) -> bytes:
    return _key(number, 0) + _length(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, 2) + _length(len(value)) + value


def _length(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial
        table.append(byte)
    return table


CRC = _crc_table()


def masked(data: bytes) -> int:
    """TensorFlow's masked CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass
class MLflow:
    """A folder as MLflow's file store keeps it, which MLflow 3 can move into its database."""

    folder: Path
    run: Path
    options: Mapping[str, Any]
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = hashlib.sha256(str(self.run.resolve()).encode()).hexdigest()[:32]
        experiment = self.folder / "0"
        self.home = experiment / self.id
        for name in ("metrics", "params", "tags", "artifacts"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        for old in (self.home / "metrics").rglob("*"):
            if old.is_file():
                old.unlink()
        _yaml(
            experiment / "meta.yaml",
            {
                "artifact_location": experiment.resolve().as_uri(),
                "experiment_id": "0",
                "lifecycle_stage": "active",
                "name": "Default",
            },
        )
        for name, value in self.options.items():
            (self.home / "params" / name).write_text(str(value), encoding="utf-8")
        (self.home / "tags" / "mlflow.runName").write_text(called(self.run, self.options), encoding="utf-8")
        self._meta("RUNNING")

    def add(self, scalar: Scalar) -> None:
        self.times.append(scalar.time)
        path = self.home / "metrics" / re.sub(r"[^\w./ -]", "_", scalar.name)  # as MLflow allows them
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{round(scalar.time * 1000)} {scalar.value!r} {scalar.round}\n")

    def close(self) -> None:
        self._meta("FINISHED")

    def _meta(self, status: str) -> None:
        times = [round(time * 1000) for time in self.times] or [0]
        _yaml(
            self.home / "meta.yaml",
            {
                "artifact_uri": (self.home / "artifacts").resolve().as_uri(),
                "end_time": times[-1] if status == "FINISHED" else None,
                "entry_point_name": "",
                "experiment_id": "0",
                "lifecycle_stage": "active",
                "run_id": self.id,
                "run_name": called(self.run, self.options),
                "run_uuid": self.id,
                "source_name": "",
                "source_type": 4,
                "source_version": "",
                "start_time": times[0],
                "status": 3 if status == "FINISHED" else 1,
                "tags": [],
                "user_id": "",
            },
        )


def _yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in values.items()), encoding="utf-8")


class WandB:
    """Weights & Biases, offline: its package writes a folder that `wandb sync` can send later."""

    def __init__(self, folder: Path, run: Path, options: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingPackage("wandb", "a run for Weights & Biases", "wandb") from None
        folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            mode="offline",
            dir=str(folder),
            name=called(run, options),
            project="fedkge",
            config=dict(options),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.run.define_metric("*", step_metric="round")

    def add(self, scalar: Scalar) -> None:
        self.run.log({scalar.name: scalar.value, "round": scalar.round})

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, type[Any]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


class Tracking:
    """A run that is read again and again; each scalar is passed on once, into files for their owner only."""

    def __init__(self, run: Path, name: str, folder: Path) -> None:
        from fedkge.config import read_toml

        if not (run / CONFIG).is_file():
            raise DataError(f"{run}: not a run folder; expected one with config.toml, as `fedkge run` makes")
        self.run, self.told = run, 0
        options = flat(without_places([read_toml(run / CONFIG)])[0])
        with privately():
            self.tracker: Tracker = TRACKERS[name](folder, run, options)

    @property
    def ended(self) -> bool:
        return (self.run / "summary.json").exists()

    def read(self) -> int:
        """Pass on what is new; how much that was."""
        found = list(scalars(self.run))
        new = found[self.told :]
        with privately():
            for scalar in new:
                self.tracker.add(scalar)
        self.told = len(found)
        return len(new)
