"""From an experiment to its data: every experiment has its own, read once where several have it in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import CONFIG, answer, fedkge, made, refused, summary_of, write_home
from fedkge.cli.experiments import Origin, one, varied
from fedkge.errors import ConfigError, DataError
from fedkge.graphs import files as graph_files
from fedkge.graphs.exposure import exposures, shared_counts
from fedkge.graphs.files import graph_from_names, read_federation
from fedkge.graphs.graph import Axis, Federation, Names
from fedkge.graphs.marks import mark_share
from fedkge.graphs.split import parse_ratio, split
from fedkge.graphs.subgraph import in_name_order, merged
from fedkge.methods.base import Member, Part
from fedkge.runs.data import Loader, Sources, load
from fedkge.runs.experiment import Experiment
from small_federations import small_federation

STRICT = {"mode": "strict", "noise": 1.0, "delta": 1e-4}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sites; tests work beside them."""
    write_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(home: Path, **options: Any) -> Experiment:
    data = {"path": str(home / "federation"), **options.pop("data", {})}
    return Experiment.parse({"data": data, "model": {"name": "transe", "dim": 4}, **options})


def digests(federation: Federation) -> dict[str, str]:
    return {site: graph.digest() for site, graph in federation.items()}


def ordered(federation: Federation) -> Federation:
    return {site: in_name_order(graph) for site, graph in federation.items()}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is read from the disk."""
    read, found = graph_files.read_federation, []

    def counted(path: Path, **options: bool) -> object:
        found.append(path)
        return read(path, **options)

    monkeypatch.setattr(graph_files, "read_federation", counted)
    return found


# Experiments that differ in their data


@pytest.mark.parametrize("first", [0, 1])
def test_every_share_of_marks_has_its_own(home: Path, reads: list[Path], first: int) -> None:
    loader, plain = Loader(), read_federation(home / "federation")
    shares = [0.1, 0.5]
    for share in shares[first:] + shares[:first]:
        found = loader.load(experiment(home, marks={"share": share}, privacy={"mode": "u-only"}))
        assert digests(found.named) == digests(ordered(mark_share(plain, share, 0)))
        for graph in found.named.values():
            assert graph.confidential is not None
            assert abs(graph.confidential.mean() - share) < 0.02
    assert len(reads) == 1, "the graphs are the same"


def test_every_seed_has_its_own_marks(home: Path, reads: list[Path]) -> None:
    loader, plain = Loader(), read_federation(home / "federation")
    found = {}
    for seed in (0, 1, 2):
        made_up = experiment(home, marks={"share": 0.3}, privacy={"mode": "u-only"}, seed=seed)
        found[seed] = digests(loader.load(made_up).named)
        assert found[seed] == digests(ordered(mark_share(plain, 0.3, seed)))
    assert len({of["north"] for of in found.values()}) == 3
    assert len(reads) == 1


def test_every_file_of_marks_has_its_own(home: Path) -> None:
    loader, counts = Loader(), []
    for relation in "bc":
        (home / f"{relation}.txt").write_text(f"{relation}\n")
        marks = {"relations": str(home / f"{relation}.txt")}
        south = loader.load(experiment(home, marks=marks)).named["south"]
        assert south.confidential is not None
        named = {south.relations[r] for r in south.train[south.confidential, 1].tolist()}
        assert named == {relation}
        counts.append(int(south.confidential.sum()))
    assert loader.load(experiment(home)).named["south"].confidential is None


@pytest.mark.parametrize("turn", [1, -1])
def test_every_mode_has_its_own_numbering(home: Path, reads: list[Path], turn: int) -> None:
    """Where all triples are confidential, the order of files must not show in ids."""
    loader, plain = Loader(), read_federation(home / "federation")
    for mode in ({"mode": "off"}, {**STRICT, "mode": "fulldp"})[::turn]:
        named = loader.load(experiment(home, privacy=mode)).named
        expected = ordered(plain) if mode["mode"] == "fulldp" else plain
        for site, graph in named.items():
            assert list(graph.entities) == list(expected[site].entities)
            assert np.array_equal(graph.train, expected[site].train)
    assert list(plain["north"].entities) != sorted(plain["north"].entities), "else this would say nothing"
    assert len(reads) == 1


def test_every_seed_has_its_own_split(home: Path, reads: list[Path]) -> None:
    for site in ("north", "south"):
        (home / "federation" / site / "valid.tsv").unlink()
    loader, plain = Loader(), read_federation(home / "federation")
    found = []
    for seed in (0, 1):
        named = loader.load(experiment(home, data={"ratio": "8:1:1"}, seed=seed)).named
        expected = split(merged(plain["north"]), parse_ratio("8:1:1"), seed)
        assert named["north"].digest() == expected.digest()
        found.append(named["north"].digest())
    assert found[0] != found[1]
    with pytest.raises(ConfigError, match=r"site 'north' has no valid triples; name a ratio, as in"):
        loader.load(experiment(home))


def test_every_alignment_has_its_own_names(home: Path, reads: list[Path]) -> None:
    loader = Loader()
    shared = {}
    for names in (True, False):
        found = loader.load(experiment(home, align={"names": names}))
        north, south = (set(graph.entities) for graph in found.federation.values())
        shared[names] = north & south
        assert list(found.named["north"].entities) == list(
            loader.load(experiment(home)).named["north"].entities
        )
    assert len(shared[True]) == 20
    assert shared[False] == set()
    assert len(reads) == 1


def test_what_does_not_matter_to_data_is_not_loaded_again(home: Path) -> None:
    loader = Loader()
    first = loader.load(experiment(home, seed=0))
    for other in ({"seed": 1}, {"rounds": 3}, {"method": {"name": "fede"}}, {"model": {"name": "rotate"}}):
        assert loader.load(experiment(home, **other)) is first
    assert load(experiment(home)) is not first


def test_graphs_at_hand_are_treated_as_those_of_files(home: Path) -> None:
    made_up = experiment(home, privacy={**STRICT, "mode": "fulldp"})
    found = Sources.of(made_up, read_federation(home / "federation"))
    assert digests(found.named) == digests(load(made_up).named)
    assert list(found.named["south"].entities) == sorted(found.named["south"].entities)


def test_a_secret_is_long_enough(home: Path) -> None:
    (home / "secret").write_bytes(b"0123456789abcdef")
    (home / "short").write_bytes(b"0123456789abcde")
    graph = read_federation(home / "federation")["north"]
    member = Member(graph, {"north": Part(graph)})
    ids = []
    for align in ({}, {"secret": str(home / "secret")}):
        made_up = experiment(home, align=align)
        ids.append(load(made_up).identity(made_up, member).ids[Axis.ENTITY])
    assert ids[0] == [name.encode() for name in graph.entities], "without a secret the hub is told names"
    assert not any(name.encode() in one for name, one in zip(graph.entities, ids[1], strict=True))
    for name, says in (("short", "has 15 bytes, expected at least 16"), ("nowhere", "No such file")):
        made_up = experiment(home, align={"secret": str(home / name)})
        with pytest.raises((ConfigError, DataError), match=f"align.secret: .*{name}.*{says}"):
            load(made_up).identity(made_up, member)


# As commands


SHORT = ("--set", "rounds=2")


def test_a_sweep_of_marks_is_as_many_runs(home: Path) -> None:
    private = ("--set", "privacy.mode=u-only", *SHORT)
    answer("sweep", "tiny.toml", "--grid", "marks.share=0.1,0.5", *private, "--out", "grid")
    for share in (0.1, 0.5):
        answer("run", "tiny.toml", "--set", f"marks.share={share}", *private, "--out", f"alone{share}")
        assert made(f"grid/marks.share={share}") == made(f"alone{share}")
        digest = {site: of["digest"] for site, of in summary_of(f"alone{share}")["sites"].items()}
        plain = read_federation(home / "federation")
        assert digest == digests(ordered(mark_share(plain, share, 0)))


def test_seeds_with_marks_are_as_many_runs(home: Path) -> None:
    line = ("run", "tiny.toml", "--set", "marks.share=0.3", "--set", "privacy.mode=u-only", *SHORT)
    answer(*line, "--seeds", "0,1,2", "--out", "seeds")
    for seed in (0, 1, 2):
        answer(*line, "--set", f"seed={seed}", "--out", f"alone{seed}")
        assert made(f"seeds/seed-{seed}") == made(f"alone{seed}")
    found = {summary_of(f"alone{seed}")["sites"]["north"]["digest"] for seed in (0, 1, 2)}
    assert len(found) == 3
    assert fedkge("evaluate", "seeds/seed-2").exit_code == 0, "its data is found again"


def test_a_sweep_of_modes_numbers_each_by_its_own_rules(home: Path) -> None:
    """Marks are at north alone: south may keep its order, unless everything is confidential."""
    train = home / "federation" / "north" / "train.tsv"
    lines = train.read_text().splitlines()
    train.write_text("".join(f"{line}\t{int(number < 60)}\n" for number, line in enumerate(lines)))
    answer(
        *("sweep", "tiny.toml", "--grid", "privacy.mode=strict,fulldp"),
        *("--set", "privacy.noise=1.0", "--set", "privacy.delta=1e-4", "--set", "privacy.accountant=rdp"),
        *("--set", "evaluate.every=2", *SHORT, "--out", "grid"),
    )
    names = {
        mode: {
            site: Path(f"grid/privacy.mode={mode}/sites/{site}/entities.tsv").read_text().splitlines()
            for site in ("north", "south")
        }
        for mode in ("strict", "fulldp")
    }
    as_read = list(read_federation(home / "federation")["south"].entities)
    assert names["strict"]["south"] == as_read != sorted(as_read)
    assert names["fulldp"]["south"] == sorted(as_read)
    assert names["strict"]["north"] == names["fulldp"]["north"] == sorted(as_read)


# Where files are


def test_paths_of_a_file_are_relative_to_it(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        found = one(home / "tiny.toml", [])
        assert found.data.path == home / "federation"
        (summary,) = answer("run", home / "tiny.toml", *SHORT, "--out", "run")
        assert set(summary["sites"]) == {"north", "south"}
        up = Path("..") / home.relative_to(elsewhere.parent) / "tiny.toml"
        assert one(up, []).data.path == home / "federation"
        assert fedkge("evaluate", "run").exit_code == 0
    assert fedkge("evaluate", elsewhere / "run").exit_code == 0, "a run knows its data from anywhere"


def test_paths_that_are_given_are_relative_to_where_one_stands(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    given = one(home / "tiny.toml", ["data.path=here", "start=before", "marks.relations=../list.txt"])
    assert (given.data.path, given.start) == (elsewhere / "here", elsewhere / "before")
    assert given.marks.relations == elsewhere.parent / "list.txt"
    table = one(home / "tiny.toml", ['data={path="here"}'])
    assert table.data.path == elsewhere / "here"
    origin = Origin(home / "tiny.toml", (), "--grid")
    points = [{"data.path": "here"}, {"data.path": "there"}]
    paths = [found.data.path for _, found in varied(origin, points)]
    assert paths == [elsewhere / "here", elsewhere / "there"]
    assert str(elsewhere / "nowhere") in refused("run", home / "tiny.toml", "--set", "data.path=nowhere")


def test_all_options_that_are_files_are_found(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = """
        start = "before"
        [marks]
        relations = "marks/relations.txt"
        triples = "marks/triples.tsv"
        [align]
        entities = "links.tsv"
        relations = "/whole/relations.tsv"
        secret = "../secret"
        withhold = "withheld.txt"
        """
    (home / "files.toml").write_text(CONFIG + text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        found = one(home / "files.toml", [])
    assert found.start == home / "before"
    assert found.marks.relations == home / "marks" / "relations.txt"
    assert found.marks.triples == home / "marks" / "triples.tsv"
    assert found.align.entities == home / "links.tsv"
    assert found.align.relations == Path("/whole/relations.tsv")
    assert found.align.secret == home.parent / "secret"
    assert found.align.withhold == home / "withheld.txt"


def test_every_option_that_is_a_path_is_known_to_be_one(home: Path) -> None:
    """A new one that is not in `PATHS` would be looked for wherever the command runs."""
    from dataclasses import fields, is_dataclass
    from typing import get_args, get_type_hints

    from fedkge.front.options import PATHS

    def paths(cls: Any, part: str = "") -> set[tuple[str, str]]:
        hints, found = get_type_hints(cls), set()
        for field in fields(cls):
            kind = hints[field.name]
            if kind is Path or Path in get_args(kind):
                found.add((part, field.name))
            elif is_dataclass(kind):
                found |= paths(kind, field.name)
        return found

    assert paths(Experiment) == set(PATHS)


def test_a_name_that_nobody_has_cannot_be_withheld(tmp_path: Path) -> None:
    (tmp_path / "hidden").write_text("e12\ne-nobody\n")
    made_up = experiment(tmp_path, method={"name": "fedep"}, align={"withhold": str(tmp_path / "hidden")})
    sources = Sources.of(made_up, small_federation())
    with pytest.raises(ConfigError, match="'e-nobody' is no entity of any site"):
        sources.identity(made_up, sources.members(made_up)["a"])


def test_a_name_that_is_too_long_to_announce_is_an_error(tmp_path: Path) -> None:
    graph = small_federation()["a"]
    names = Names(["ä" * 3000, *list(graph.entities)[1:]])
    with pytest.raises(ConfigError, match=r"a name of 6,000 bytes .* expected at most 4,096"):
        Sources.of(experiment(tmp_path), {"a": replace(graph, entities=names)})


def test_what_is_withheld_is_not_counted_as_shared(tmp_path: Path) -> None:
    sites = {
        "a": graph_from_names([("x", "r", "y"), ("y", "r", "z")]),
        "b": graph_from_names([("x", "r", "y"), ("y", "s", "z")]),
    }
    (tmp_path / "hidden").write_text("y\n")
    plain = experiment(tmp_path, method={"name": "fedep"})
    hiding = experiment(tmp_path, method={"name": "fedep"}, align={"withhold": str(tmp_path / "hidden")})
    shared, by_two = {}, {}
    for name, wanted in (("plain", plain), ("hiding", hiding)):
        announced = Sources.of(wanted, sites).announced(wanted)
        shared[name] = shared_counts(announced, wanted.method.shares)["a"][Axis.ENTITY]
        (found,) = exposures(announced, wanted.method.shares)
        by_two[name] = found.by_two
    assert (shared, by_two) == ({"plain": 3, "hiding": 2}, {"plain": 3, "hiding": 2})
