"""Documents and their fenced blocks; tutorials, played as a reader would."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from commands import fedkge
from fedkge.config import override, to_toml

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "src/**/*.md", "tools/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "atlas_readme.md"  # a template: its links are those of the file it becomes
)
#: pages of `docs` that a reader can follow from beginning to end, which tests do
TUTORIALS = ("quickstart.md", "own-data.md", "own-method.md", "private-run.md", "choosing.md", "python.md")
SMALL = ["rounds=1", "model.dim=8", "trainer.epochs=1", "trainer.negatives=4", "evaluate.every=1"]
ROUGH = "variants.protected.privacy.accountant=rdp"  #: finds the noise faster than pld
STEADY = ("data", "explain", "list")  #: commands that print the same whatever was trained
LIKE = 0.03  #: how far numbers of another machine may be from printed ones, absolutely or relatively


class Block(NamedTuple):
    """A fenced block of a document. A title is the name of the file that a reader makes of it."""

    path: Path
    line: int
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path) -> list[Block]:
    text, found = path.read_text(encoding="utf-8"), []
    fences = re.finditer(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', text, flags=re.MULTILINE | re.DOTALL)
    for fence in fences:
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(path, line, fence[1], fence[2] or "", fence[3]))
    return found


def every_block(language: str) -> list[Block]:
    return [block for path in DOCUMENTS for block in blocks(path) if block.language == language]


def small(block: Block) -> str:
    """Its text with a smaller budget."""
    if block.language == "toml":
        tables = tomllib.loads(block.text)
        rough = [ROUGH] if "protected" in tables.get("variants", ()) else []
        return to_toml(override(tables, [*SMALL, *rough]))
    text = block.text
    for option, value in {"rounds": 1, "dim": 8, "negatives": 4}.items():
        text = re.sub(rf"\b{option}=\d+", f"{option}={value}", text)
    return text


class Shown(NamedTuple):
    """A block of a tutorial that was run, what it printed, and what the page says that it prints."""

    block: Block
    steady: bool  #: nothing in it depends on training
    printed: str
    told: str | None


def play(path: Path, home: Path, whole: bool = False) -> Iterator[Shown]:
    """Do in order what a tutorial says, with the folder `home` as the working one.

    A block with a title is a file. Lines of shell are run, `fedkge` in this process, and Python as cells of
    one notebook. A block of text right after one that ran is its output. Not `whole`: with a small budget.
    """
    cells: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(path)
    for block, after in zip(found, [*found[1:], None], strict=True):
        text = block.text if whole else small(block)
        if block.title:
            (home / block.title).write_text(text, encoding="utf-8")
        elif block.language in ("sh", "python"):
            told = after.text if after and (after.language, after.title) == ("text", "") else None
            printed = _cell(block, text, cells) if block.language == "python" else _shell(block, text, home)
            words = re.findall(r"^fedkge (\w+)", text, re.MULTILINE)
            yield Shown(block, bool(words) and set(words) <= set(STEADY), printed, told)


def _cell(block: Block, text: str, cells: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, str(block), "exec"), cells)
    return out.getvalue()


def _shell(block: Block, text: str, home: Path) -> str:
    printed = ""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["fedkge"]:
            done = fedkge(*words[1:])
            assert done.exit_code == 0, f"{block}: {line}\n{done.output}"
            printed += done.stdout + done.stderr
        else:
            here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            found = subprocess.run(
                ["bash", "-ec", line], cwd=home, env=here, capture_output=True, text=True, check=False
            )
            assert found.returncode == 0, f"{block}: {line}\n{found.stderr}"
            printed += found.stdout
    return printed


def differences(shown: Shown) -> list[str]:
    """Lines of the page that were not printed, in their order; numbers may be a little different.

    `...` stands for any lines, or for any words of a line.
    """
    lines, missing = [_words(line) for line in shown.printed.splitlines()], []
    for line in (shown.told or "").splitlines():
        wanted = _words(line)
        if not wanted or wanted == ["..."]:
            continue
        at = next((i for i, words in enumerate(lines) if _fits(wanted, words)), None)
        if at is None:
            missing.append(line)
        else:
            lines = lines[at + 1 :]
    return missing


def _words(line: str) -> list[str]:
    return re.sub(r"[─-╿]", " ", line).split()


def _fits(wanted: list[str], words: list[str]) -> bool:
    """Whether a line has the words that are wanted, `...` being any."""
    if "..." not in wanted:
        return _alike(wanted, words)
    at = wanted.index("...")
    if not _alike(wanted[:at], words[:at]):
        return False
    rest = wanted[at + 1 :]
    return not rest or any(_fits(rest, words[i:]) for i in range(at, len(words)))


def _alike(first: list[str], second: list[str]) -> bool:
    return len(first) == len(second) and all(map(_like, first, second))


def _like(first: str, second: str) -> bool:
    pattern = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
    if re.sub(pattern, "#", first) != re.sub(pattern, "#", second):
        return False
    pairs = zip(re.findall(pattern, first), re.findall(pattern, second), strict=True)
    numbers = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= LIKE * max(1.0, abs(a)) for a, b in numbers)
