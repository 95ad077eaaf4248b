"""Hooks of mkdocs: pages from outside `docs`, links to them, and no page that fetches from elsewhere."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
GUESTS = {  #: documents outside `docs`, and which pages of the site they are
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "examples/README.md": "project/examples.md",
    "src/fedkge/graphs/atlas/README.md": "project/atlas.md",
}
HOMES = {page: path for path, page in GUESTS.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


def on_config(config: Any) -> Any:
    """A pattern in the menu stands for all pages that it matches."""
    config["nav"] = list(_expanded(config["nav"]))
    return config


def _expanded(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, dict):
            yield {title: list(_expanded(of)) if isinstance(of, list) else of for title, of in item.items()}
        elif "*" in item:
            docs = ROOT / "docs"
            yield from sorted(str(path.relative_to(docs)) for path in docs.glob(item))
        else:
            yield item


def on_files(files: Any, config: Any) -> Any:
    for path, page in GUESTS.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links of the repository links of the site; one to a file that is no page becomes text."""
    here = page.file.src_uri
    home = posixpath.dirname(HOMES.get(here, f"docs/{here}"))

    def link(found: re.Match[str]) -> str:
        bang, text, target = found.groups()
        file, hash_, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not file:
            return found[0]
        there = posixpath.normpath(posixpath.join(home, file))
        if not (ROOT / there).exists():
            raise PluginError(f"{here}: {target}: no such file")
        site = GUESTS.get(there, there.removeprefix("docs/") if there.startswith("docs/") else None)
        if site is None:
            return text if text.startswith("`") else f"`{there}`" if text == there else f"{text} (`{there}`)"
        return f"{bang}[{text}]({posixpath.relpath(site, posixpath.dirname(here) or '.')}{hash_}{anchor})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


class _Loads(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        wanted = given.get(LOADED.get(tag, "")) or ""
        if re.match(r"(https?:)?//", wanted) and given.get("rel") not in ("canonical", "prev", "next"):
            self.found.append(wanted)


def on_post_build(config: Any) -> None:
    """No page and no style sheet loads anything from another host."""
    site = Path(config["site_dir"])
    for path in sorted(site.rglob("*.html")):
        loads = _Loads()
        loads.feed(path.read_text(encoding="utf-8"))
        if loads.found:
            raise PluginError(f"{path.relative_to(site)} loads {loads.found[0]}")
    for path in sorted(site.rglob("*.css")):
        if found := re.search(r"(@import|url\()\s*['\"]?(https?:)?//\S*", path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.relative_to(site)} loads {found[0]}")
