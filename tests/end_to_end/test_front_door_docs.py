"""The front door, item 15: tutorials run, the README's first screen is true, every page is on the site."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from commands import fedkge, summary_of
from documents import ROOT, TUTORIALS, Shown, blocks, differences, play
from fedkge.methods import METHODS
from fedkge.models import MODELS

pytest.importorskip("numba")
README = ROOT / "README.md"
NUMBER = r"\d\.\d{4}"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_plugins: None) -> Path:
    """An empty folder with the one file that readers copy, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    shutil.copy(ROOT / "examples" / "clinics" / "make_files.py", tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", TUTORIALS)
def test_15_tutorials_run(page: str, desk: Path) -> None:
    """With a small budget. What no training decides is printed as the page says."""
    done = list(play(ROOT / "docs" / page, desk))
    assert done
    assert not [line for shown in done if shown.steady for line in differences(shown)]
    assert all(shown.printed.strip() for shown in done if shown.told)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS)
def test_15_tutorials_print_what_they_say(page: str, desk: Path) -> None:
    """With their own budget; numbers may be a little different on another machine."""
    done = list(play(ROOT / "docs" / page, desk, whole=True))
    assert not [line for shown in done for line in differences(shown)]
    if page == "private-run.md":
        names = ("unprotected", "without", "protected")
        mrr = {name: summary_of(f"runs/private/{name}")["metrics"]["test"]["mrr"] for name in names}
        assert mrr["protected"] < mrr["unprotected"] - 0.1
        assert abs(mrr["protected"] - mrr["without"]) < 0.06


def test_15_lines_that_are_not_printed_would_be_noticed() -> None:
    block = blocks(ROOT / "docs" / "quickstart.md")[0]
    printed = "│ airline │ 0.5206 │\n│ mapping │ 0.3952 │\n"
    for told, missing in {
        "│ airline │ 0.5300 │\n...\n│ mapping │ 0.3952 │": 0,
        "│ airline │ 0.6206 │": 1,
        "│ airlines │ 0.5206 │": 1,
        "│ mapping │ 0.3952 │\n│ airline │ 0.5206 │": 1,
        "│ airline │ ...\n│ ... 0.3952 │": 0,
        "│ ... 0.5206 │ 0.3952 │": 1,
    }.items():
        assert len(differences(Shown(block, True, printed, told))) == missing


def told_by_readme() -> dict[str, list[float]]:
    """The demo's table: test MRR of each site by each method."""
    rows = re.findall(r"^│ (\w[\w ]*?) +│(.*)│$", README.read_text(encoding="utf-8"), re.MULTILINE)
    return {site: [float(number) for number in re.findall(NUMBER, cells)] for site, cells in rows}


def test_15_the_first_screen() -> None:
    """One sentence, the demo with its output, ten lines of Python, one plot."""
    text = README.read_text(encoding="utf-8")
    first = text.split("\n## ")[0]
    sentence = first.split("\n\n")[1]
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")
    demo, table, python = blocks(README)[:3]
    assert (demo.language, table.language, python.language) == ("sh", "text", "python")
    assert demo.text.split()[:2] == ["make", "demo"]
    assert len([line for line in python.text.splitlines() if line.strip()]) <= 10
    assert ".plot()" in python.text
    assert "](docs/demo.svg)" in first
    assert python.text in first


def test_15_the_plot_shows_the_table() -> None:
    """Heights of its bars are the numbers of the README's table."""
    table = told_by_readme()
    svg = ElementTree.parse(ROOT / "docs" / "demo.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    labels = {"".join(text.itertext()) for text in svg.iter(f"{name}text")}
    assert {site for site in table if site != "all sites"} <= labels
    found = [float(rect.attrib["height"]) for rect in svg.iter(f"{name}rect") if "y" in rect.attrib]
    bars = found[4:]  # after the legend
    numbers = [table[site][k] for k in range(4) for site in table if site != "all sites"]
    assert len(bars) == len(numbers) == 16
    scale = sum(bars) / sum(numbers)
    assert bars == pytest.approx([number * scale for number in numbers], abs=0.2)


def test_15_the_readme_counts_models_and_methods() -> None:
    models, baselines = len(list(MODELS)), len(("single", "collective"))
    methods = len(list(METHODS)) - baselines
    counted = f"**{models} models, {methods} federated methods and {baselines} baselines**"
    assert counted in README.read_text(encoding="utf-8")


@pytest.mark.slow
def test_15_the_demo_prints_what_the_readme_says(desk: Path) -> None:
    line = ["--method", "single,collective,fede,fedep", "--out", "runs/demo"]
    assert " ".join(line) in (ROOT / "Makefile").read_text(encoding="utf-8")
    done = fedkge("compare", ROOT / "examples" / "atlas.toml", *line)
    assert done.exit_code == 0, done.output
    demo, table, *_ = blocks(README)
    assert not differences(Shown(demo, False, done.stdout + done.stderr, table.text))


def test_15_every_page_is_on_the_site() -> None:
    """`make docs` would stop at a page that no menu leads to, and at a menu that leads to no page."""
    docs = ROOT / "docs"
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    named = re.findall(r"^ *- (?:[^:\n]+: )?([\w/*-]+\.md)$", menu, re.MULTILINE)
    nav = [page for name in named if not name.startswith("project/") for page in docs.glob(name)]
    assert len(nav) == len(set(nav))
    missing = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {
        str(page.relative_to(docs)) for page in nav
    }
    assert not missing, "add them to nav in mkdocs.yml"
    assert all("*" in name or (docs / name).exists() for name in named if not name.startswith("project/"))


def test_15_the_api_page_has_every_public_name() -> None:
    import fedkge as package

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: fedkge\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(name for name in package.__all__ if name != "__version__")
