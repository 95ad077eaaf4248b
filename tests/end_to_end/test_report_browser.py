"""The report in a real browser: every plot is drawn, in both schemes, and nothing else happens."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fedkge.reports.folders.load import load_runs
from run_folders import Away, write_ranks, write_run, write_seeds, write_sweep, write_tables

pytest.importorskip("plotly", reason="the report needs plotly")
TSNE = find_spec("sklearn") is not None
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; Debian: apt-get install chromium")

HOSTILE = "</script><script>alert(1)</script>"
PROBE = """<script>
  const width = () => document.querySelector("#plot0 .main-svg").getAttribute("width");
  const seen = {loaded: performance.getEntriesByType("resource"), before: width()};
  dispatchEvent(new Event("beforeprint"));
  seen.printing = width();
  dispatchEvent(new Event("afterprint"));
  setTimeout(() => { seen.after = width(); document.title = JSON.stringify(seen); }, 1000);
</script></body>"""
NAMED_END = r'<g class="annotation"[^>]*>.*?collective.*?</g>'
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alone, together, with sites that missed rounds, and not ended; one site's name is an attack."""
    from fedkge.reports.pages.html import write_report
    from fedkge.reports.pages.sections import Shown

    folder = tmp_path_factory.mktemp("runs")
    sites = ["airline", "7", 'office of "R&D"', HOSTILE]
    runs = [
        write_run(folder / "single", sites=sites),
        write_run(folder / "collective", "collective", sites=sites, level=0.4),
        write_run(folder / "fede", "fede", sites=sites, ended=False, last=12),
        write_run(folder / "fedep", "fedep", sites=sites, away=Away(late={"7": [3]}, refused={"7": [4]})),
    ]
    for run in (runs[0], runs[1], runs[3]):
        write_ranks(run, {site: [1.0, 2.5, 4.0, 8.0] for site in sites})
        write_tables(run, {site: [f"e{i}" for i in range(k, k + 12)] for k, site in enumerate(sites)})
    write_report(load_runs(runs), folder / "report.html", Shown("fedep", tsne=TSNE))
    return folder / "report.html"


def browse(report: Path, profile: Path, *options: str) -> tuple[str, str]:
    """What the browser printed, and what it logged."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--window-size=1280,2400"]
    done = subprocess.run(
        [*command, *options, report.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, done.stderr


@pytest.fixture(scope="module", params=[(), (DARK,)], ids=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


@pytest.fixture(scope="module")
def seen(report: Path, scheme: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page as the browser has it after drawing, without its code; and the browser's log."""
    probe = report.with_name("probe.html")
    probe.write_text(report.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    dom, log = browse(probe, tmp_path_factory.mktemp("profile"), "--dump-dom", *scheme)
    return without_code(dom), log


def without_code(dom: str) -> str:
    return re.sub(r"(<(script|style)[^>]*>).*?</\2>", r"\1", dom, flags=re.DOTALL)


def test_every_plot_is_drawn(seen: tuple[str, str]) -> None:
    dom, log = seen
    places = len(re.findall(r'class="plot[ "]', dom))
    # 2 of sites, 5 of loss and 5 of validation (all, and one per site), 3 over bytes, 1 of bytes sent,
    # 1 beside a reference, 1 of who took part, 3 of sizes, 1 of overlap, 1 of degrees, 1 of clustering, 1 of
    # time; of entities in a plane, 5 for each of the three that have ended
    assert places == 25 + 15 * TSNE
    assert dom.count("js-plotly-plot") == places
    assert len(re.findall(r'<svg class="main-svg"[^>]*>', dom)) >= places
    assert "could not be drawn" not in dom
    assert "CONSOLE" not in log  # neither errors nor what the page's policy had to forbid


def test_plots_have_the_colours_of_the_scheme(seen: tuple[str, str], scheme: tuple[str, ...]) -> None:
    from fedkge.reports.pages import page

    own, other = (page.DARK, page.LIGHT) if scheme else (page.LIGHT, page.DARK)
    assert rgb(own, "s1") in seen[0]
    assert rgb(other, "s1") not in seen[0]


def test_lines_are_named_at_their_ends(seen: tuple[str, str]) -> None:
    assert re.search(NAMED_END, seen[0])


def test_seeds_and_sweeps_are_drawn_on_a_phone(tmp_path: Path) -> None:
    """A legend names lines there: names beside them would take half of the width."""
    from fedkge.reports.pages.html import write_report

    write_seeds(tmp_path / "runs" / "seeds", "collective", (0, 1))
    write_sweep(tmp_path / "runs", "fedprox", "method.mu", {"0": 0.3, "0.1": 0.33, "1": 0.31})
    write_run(tmp_path / "runs" / "single", "single")
    write_report(load_runs([tmp_path / "runs"]), tmp_path / "report.html")
    phone = ("--dump-dom", "--window-size=500,900")
    page, log = browse(tmp_path / "report.html", tmp_path / "profile", *phone)
    dom = without_code(page)
    places = len(re.findall(r'class="plot[ "]', dom))
    assert dom.count("js-plotly-plot") == places > 20
    assert "could not be drawn" not in dom
    assert "CONSOLE" not in log
    assert 'class="errorbars"' in dom
    assert 'class="legendtext"' in dom
    assert not re.search(NAMED_END, dom)


def rgb(scheme: str, name: str) -> str:
    found = re.search(rf"--{name}: #(\w\w)(\w\w)(\w\w);", scheme)
    assert found is not None
    return "rgb({}, {}, {})".format(*(int(channel, 16) for channel in found.groups()))


def test_names_are_shown_and_never_run(seen: tuple[str, str]) -> None:
    dom, _ = seen
    scripts = re.findall(r"<script[^>]*>", dom)
    assert scripts == ["<script>", '<script type="application/json" id="figures">', "<script>", "<script>"]
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in dom  # in a table
    ticks = re.findall(r"<text[^>]*>(.*?)</text>", dom)
    assert any(tick.startswith("&lt;/script&gt;&lt;script") for tick in ticks)  # in a plot
    assert "7" in ticks


def test_the_page_asks_for_nothing(seen: tuple[str, str]) -> None:
    """Neither a link to fetch, nor an entry in the browser's own list of what the page has loaded."""
    dom, _ = seen
    assert told(dom)["loaded"] == []
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', dom)


def told(dom: str) -> dict[str, Any]:
    """What the probe left in the title."""
    found = re.search("<title>(.*?)</title>", dom)
    assert found is not None
    return json.loads(found[1])


def test_plots_fit_the_paper_and_then_the_screen_again(seen: tuple[str, str]) -> None:
    found = told(seen[0])
    assert int(found["printing"]) < 690  # pixels between the margins of A4
    assert int(found["before"]) == int(found["after"]) > 900


def test_it_can_be_printed(report: Path, tmp_path: Path) -> None:
    document = tmp_path / "report.pdf"
    browse(report, tmp_path / "profile", f"--print-to-pdf={document}", DARK)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", document.read_bytes())) <= 20
