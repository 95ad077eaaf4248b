"""A node's folder: checkpoints that are whole or an error, and a journal."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedkge.config import to_toml
from fedkge.durable import locked, write_whole
from fedkge.errors import DataError
from fedkge.nodes.journal import Journal
from fedkge.nodes.ledgers import JOURNAL

__all__ = ["Store", "locked", "packed", "unpacked", "write_whole"]

FORMAT = 3  #: of checkpoints; 1 had one file for all parties, 2 no digest of the last question
MAGIC = b"fedkge checkpoint"


@dataclass(frozen=True)
class Store:
    """Where one node keeps what must outlive its process."""

    path: Path

    @property
    def journal(self) -> Journal:
        return Journal(self.path / JOURNAL)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """The terms that the node has accepted."""
        write_whole(self.path / "config.toml", to_toml(config).encode(), sync=False)

    # Checkpoints: a file for each round that is still of use

    def rounds(self) -> list[int]:
        """The rounds that there are checkpoints of, ascending."""
        stems = [file.stem for file in (self.path / "checkpoints").glob("*.checkpoint")]
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def save(
        self, round: int, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], sync: bool = True
    ) -> None:
        """State under a round's number, whole or not at all."""
        write_whole(self._file(round), packed(tensors, plain), sync)

    def load(self, round: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        path = self._file(round)
        try:
            return unpacked(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise DataError(
                f"{path}: {error}; restore the file, or delete the run's folder to train from the start"
            ) from None

    def forget(self, before: int) -> None:
        """Remove the checkpoints of earlier rounds."""
        for round in self.rounds():
            if round < before:
                self._file(round).unlink(missing_ok=True)

    def probe(self, size: int) -> None:
        """An error if the disk has no room for so many bytes: said before anything is spent."""
        self.path.mkdir(parents=True, exist_ok=True)
        found = os.statvfs(self.path)
        free = found.f_bavail * found.f_frsize
        if free < size:
            raise DataError(
                f"{self.path}: {free >> 20:,} MB are free, and a checkpoint needs {size >> 20:,}; make room, "
                "then resume: nothing was spent"
            )

    def _file(self, round: int) -> Path:
        return self.path / "checkpoints" / f"{round:06d}.checkpoint"


def packed(tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """A line with the format and a checksum of the rest; then safetensors, with plain values as JSON."""
    from safetensors.torch import save

    content: dict[str, Tensor] = {}
    there: set[int] = set()
    for key, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        content[key] = own.clone() if own.data_ptr() in there else own  # one may be held twice
        there.add(own.data_ptr())
    body = save(content, metadata={"state": json.dumps(plain)})
    return b"%s %d %s\n" % (MAGIC, FORMAT, hashlib.sha256(body).hexdigest().encode()), body


def unpacked(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `packed` wrote; a `ValueError` says what is wrong with anything else."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    line, _, body = content.partition(b"\n")
    words = line.split()
    if words[:2] != MAGIC.split() or len(words) != 4:
        raise ValueError("not a checkpoint")
    if words[2] != b"%d" % FORMAT:
        found = words[2].decode(errors="replace")
        raise ValueError(f"a checkpoint of format {found}, this version of fedkge reads {FORMAT}")
    if hashlib.sha256(body).hexdigest().encode() != words[3]:
        raise ValueError("its checksum is wrong: the file was damaged or changed")
    try:
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + size])
        return load(body), json.loads(header["__metadata__"]["state"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"not a checkpoint ({error})") from None
