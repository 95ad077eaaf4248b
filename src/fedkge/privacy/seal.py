"""A ledger's seal: each line, and where it ends, is signed by a key that only the site has.

A line ends with an HMAC of all that stands before it, which holds a digest of the line before. Beside the
ledger, `ledger.head` says how many lines there are and which the last one is, signed too. So it is noticed
at once, also between checkpoints, if somebody without the key cuts off, changes or adds lines.

The head is written after its line. A process that is killed in between leaves a line more than the head says:
that line is true, and counts. Whoever can restore an older ledger together with its older head is noticed by
what else remembers the ledger: checkpoint, journal, result, and the site's own account.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedkge.durable import write_whole
from fedkge.errors import DataError

SIGNED = re.compile(rb', "mac": "([0-9a-f]{32})"\}$')


def signed(line: bytes, key: bytes) -> bytes:
    """A line of JSON, with a signature at its end."""
    return line[:-1] + b', "mac": "%s"}' % _mac(key, b"line", line).encode()


def signature(line: bytes) -> str | None:
    """What a line is signed with; none where it is not."""
    found = SIGNED.search(line)
    return None if found is None else found.group(1).decode()


def is_genuine(line: bytes, key: bytes) -> bool:
    """Whether this key has signed the line as it is."""
    found = SIGNED.search(line)
    if found is None:
        return False
    return hmac.compare_digest(found.group(1).decode(), _mac(key, b"line", line[: found.start()] + b"}"))


def _mac(key: bytes, purpose: bytes, content: bytes) -> str:
    return hmac.digest(key, purpose + b"\0" + content, hashlib.sha256)[:16].hex()


@dataclass(frozen=True)
class Head:
    """Where a ledger ends."""

    lines: int
    ledger: str  #: digest of the last line
    releases: int

    @staticmethod
    def at(ledger: Path) -> Path:
        """The file that a ledger's head is in."""
        return ledger.with_suffix(".head")

    def write(self, ledger: Path, key: bytes) -> None:
        said = asdict(self)
        content = json.dumps(said | {"mac": self._mac(key)})
        write_whole(self.at(ledger), content.encode())

    @classmethod
    def read(cls, ledger: Path, key: bytes | None) -> Head | None:
        """The head of a ledger; none where there is no file. With the key, its signature must be right."""
        path = cls.at(ledger)
        try:
            said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            mac = str(said.pop("mac"))
            head = cls(int(said["lines"]), str(said["ledger"]), int(said["releases"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise DataError(f"{path}: damaged; it says where {ledger.name} ends. Restore both") from None
        if key is not None and not hmac.compare_digest(mac, head._mac(key)):
            raise DataError(
                f"{path}: not signed by this site's key, so that lines of {ledger.name} may be missing; "
                "restore both"
            )
        return head

    def _mac(self, key: bytes) -> str:
        return _mac(key, b"head", f"{self.lines} {self.ledger} {self.releases}".encode())
