"""`fedkge unlearn` and `fedkge yardsticks`, as users run them: on good input and on bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from commands import answer, fedkge, printed, refused, write_home

pytest.importorskip("numba")

FEW = ["--set", "rounds=1", "--set", "epochs=2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("unlearned")
    write_home(home)
    options = ["--set", f"data.path={home / 'federation'}", "--set", "method.name=fedlu", "--set", "rounds=2"]
    done = fedkge("run", home / "tiny.toml", "--out", home / "raw", *options)
    assert done.exit_code == 0, done.output
    return home


def listed(home: Path, site: str, name: str, start: int = 0, count: int = 3) -> Path:
    lines = (home / "federation" / site / "train.tsv").read_text().splitlines(keepends=True)
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines[start : start + count]))
    return path


def test_a_site_forgets_and_every_command_works_on_the_new_run(home: Path, tmp_path: Path) -> None:
    file = listed(home, "north", "north.tsv")
    out = tmp_path / "new"
    found = answer("unlearn", home / "raw", "--site", "north", "--forget", file, "--out", out, *FEW, "--json")
    assert found["requests"][-1]["sites"]["north"]["triples"] == {"train": 3, "valid": 0, "test": 0}
    assert len(found["requests"][-1]["digests"]["north"]) == 3
    assert {"before", "after"} == set(found["audit"]["standing"])
    assert (out.with_name("new.key")).stat().st_mode & 0o777 == 0o600
    page = (out / "erasure.html").read_text()
    assert "What was asked" in page
    assert "Who can tell what was forgotten" in page
    for words in (["evaluate", out], ["report", out], ["attack", out, "--name", "membership"]):
        done = fedkge(*words)
        assert done.exit_code == 0, done.output
    text = (out / "erasure.json").read_text()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    train = (out / "data" / "north" / "train.tsv").read_text()
    assert not any(line in train for line in file.read_text().splitlines(keepends=True))


def test_several_sites_by_one_folder_and_the_old_run_is_erased(home: Path, tmp_path: Path) -> None:
    import shutil

    old = tmp_path / "old"
    shutil.copytree(home / "raw", old)
    for site in ("north", "south"):
        listed(home, site, f"lists/{site}/forget.tsv", 10)
    out = tmp_path / "new"
    said = fedkge(
        "unlearn",
        old,
        "--forget",
        home / "lists",
        "--out",
        out,
        "--erase",
        "--write-data",
        tmp_path / "kept",
        *FEW,
    )
    assert said.exit_code == 0, said.output
    assert "6 triples at north, south" in said.output
    assert f"{home / 'federation'}: the old run's data still has" in " ".join(said.stderr.split())
    assert not old.exists()
    assert (tmp_path / "kept" / "north" / "train.tsv").is_file()
    again = fedkge("unlearn", out, "--forget", listed(home, "north", "more.tsv", 20), "--site", "north",
                   "--out", tmp_path / "third", "--mode", "exact", "--no-audit")  # fmt: skip
    assert again.exit_code == 0, again.output
    found = json.loads((tmp_path / "third" / "erasure.json").read_text())
    assert [request["mode"] for request in found["requests"]] == ["target", "exact"]
    found["under way"] = "target"
    (tmp_path / "third" / "erasure.json").write_text(json.dumps(found))
    words = ["--withdraw", "south", "--out", tmp_path / "fourth"]
    assert "has no report yet" in refused("unlearn", tmp_path / "third", *words)


def test_nothing_changes_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("")
    out = tmp_path / "new"
    done = fedkge(
        "unlearn", home / "raw", "--site", "north", "--forget", tmp_path / "empty.tsv", "--out", out
    )
    assert done.exit_code == 0, done.output
    assert "bit by bit" in done.output
    for file in (home / "raw" / "sites").rglob("*.safetensors"):
        assert (out / "sites" / file.relative_to(home / "raw" / "sites")).read_bytes() == file.read_bytes()


def test_a_site_withdraws(home: Path, tmp_path: Path) -> None:
    done = fedkge("unlearn", home / "raw", "--withdraw", "south", "--out", tmp_path / "new", *FEW)
    assert done.exit_code == 0, done.output
    assert "site south as a whole" in done.output
    assert "Only mode exact removes what they have learnt from it." in " ".join(done.output.split())
    assert not (tmp_path / "new" / "sites" / "south").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--forget, --withdraw: expected"),
        (["--site", "north"], "1 sites and 0 files"),
        (["--site", "nrth", "--forget", "FILE"], "did you mean 'north'"),
        (["--site", "north", "--forget", "missing.tsv"], "no such file"),
        (["--site", "south", "--forget", "FILE"], "of what it should forget"),
        (["--site", "north", "--forget", "ALL"], "would forget everything"),
        (["--site", "north", "--forget", "FILE", "--of", "people"], "--of: expected one of"),
        (["--site", "north", "--forget", "FILE", "--mode", "full"], "mode"),
        (["--site", "north", "--forget", "FILE", "--set", "confusion.sofft=1"], "did you mean 'soft'"),
        (["--withdraw", "north", "--withdraw", "south"], "all sites would withdraw"),
        (["--site", "north", "--forget", "CUT"], "the gzip data ends too early"),
        (["--site", "north", "--forget", "FILE", "--against", "nowhere"], "not a run folder"),
        (["--site", "north", "--forget", "FILE", "--write-data", "RAW/kept"], "stays as it is"),
        (["--site", "north", "--forget", "FILE", "--key", "RAW/key"], "stays as it is"),
        (["--site", "north", "--forget", "FILE", "--out", "RAW/new"], "stays as it is"),
        (["--site", "north", "--forget", "FILE", "--out", "RAW/../"], "which would remember"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_made(
    home: Path, tmp_path: Path, options: list[str], says: str
) -> None:
    files = {"FILE": listed(home, "north", "bad.tsv"), "ALL": home / "federation" / "north" / "train.tsv"}
    files["CUT"] = tmp_path / "cut.tsv.gz"
    files["CUT"].write_bytes(gzip.compress(files["ALL"].read_bytes())[:-20])
    words = [str(files.get(word, word.replace("RAW", str(home / "raw")))) for word in options]
    before = sorted(home.rglob("*"))
    assert says in refused("unlearn", home / "raw", "--out", tmp_path / "new", *words)
    assert not (tmp_path / "new").exists()
    assert sorted(home.rglob("*")) == before


def test_missing_ones_can_be_ignored_and_entities_named(home: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("e3\nnobody\n")
    words = ["--site", "north", "--forget", names, "--of", "entities"]
    assert "'nobody'" in refused("unlearn", home / "raw", "--out", tmp_path / "new", *words)
    found = answer(
        "unlearn", home / "raw", "--out", tmp_path / "new", *words, "--ignore-missing", *FEW, "--json"
    )
    assert found["requests"][-1]["missing"] == {"north": 1}
    assert found["requests"][-1]["sites"]["north"]["lost"]["entities"] >= 1


def test_a_key_inside_the_folder_is_refused(home: Path, tmp_path: Path) -> None:
    file = listed(home, "north", "north.tsv")
    out = tmp_path / "new"
    words = ["--site", "north", "--forget", file, "--out", out, "--key", out / "key"]
    assert "keeps the key" in refused("unlearn", home / "raw", *words)


def test_yardsticks_stand_side_by_side(home: Path, tmp_path: Path) -> None:
    file = listed(home, "north", "north.tsv")
    words = ["yardsticks", home / "raw", "--site", "north", "--forget", file, "--out", tmp_path / "all"]
    said = fedkge(*words, "--json")
    assert said.exit_code == 0, said.output
    found, lines = printed(said.stdout), said.stderr.splitlines()
    assert [any(line.startswith(f"{one}: round 1/") for line in lines) for one in ("target", "pooled")] == [
        True
    ] * 2
    names = ["raw", "target", "paper", "exact", "alone", "pooled", "finetuned", "ascent"]
    assert [row["run"] for row in found] == names
    assert all("local forget hits@1" in row and row["seconds"] > 0 for row in found)
    assert "hub forget hits@1" in found[1]
    assert "hub forget hits@1" not in found[4]  # alone: nothing is shared
    again = fedkge(*words, "--only", "target,exact")
    assert again.exit_code == 0, again.output
    assert "did you mean" in refused(*words, "--only", "targt")
