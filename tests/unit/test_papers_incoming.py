"""Records from elsewhere: what is taken in, and every reason why a line is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from fedkge.errors import ConfigError, DataError
from fedkge.papers.incoming import gone_on_with, replaced, taken_in
from fedkge.papers.records import (
    FOLDER,
    Record,
    append,
    file_of,
    key_of,
    place_of,
    publish_all,
    read_records,
    write_records,
)

ROOT = Path(__file__).parents[2]
KNOWN = read_records(ROOT)
OLD = next(one for one in KNOWN.values() if "spent" in one)
Change = Callable[[Record], object]


def written(path: Path, *lines: Record | str) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def changed(record: Record, change: Change) -> Record:
    found = deepcopy(record)
    change(found)
    return found


@pytest.mark.parametrize("path", sorted((ROOT / FOLDER).glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_record_of_the_checkout_passes(path: Path) -> None:
    found = taken_in(ROOT, [path])
    assert found == {place: one for place, one in KNOWN.items() if file_of(one) == path.name}
    assert gone_on_with(ROOT, path) == found


def put(*path: str | int) -> Callable[[Any], Change]:
    """Set what is at this place of a record."""

    def to(value: Any) -> Change:
        def change(record: Record) -> None:
            inner: Any = record
            for part in path[:-1]:
                inner = inner[part]
            inner[path[-1]] = value

        return change

    return to


def first_metrics(**values: Any) -> Change:
    return lambda record: record["metrics"][record["method"]].update(values)


def renamed(record: Record) -> None:
    record["metrics"] = {"nobody": record["metrics"][record["method"]]}


WITH_CURVES = (one for one in KNOWN.values() if "curve" in one and one["protocol"] == "fedlu-2023")
NEW = changed(next(WITH_CURVES), put("config", "trainer", "chunk")(1))
COURSE = next(iter(NEW["courses"]))
WRONG: dict[str, tuple[Change, str]] = {
    "protocol": (put("protocol")("fedlu-2032"), r"protocol: expected one of .*; did you mean 'fedlu-2023'\?"),
    "no text": (put("model")(3), "model: expected a word or more, found 3"),
    "a path": (put("dataset")("../../x"), "dataset: expected a name without slashes"),
    "a seed below 0": (put("seed")(-1), "seed: expected a whole number of at least 0, found -1"),
    "a seed that is no number": (put("seed")("0"), 'seed: expected a whole number of at least 0, found "0"'),
    "a seed that is a bool": (put("seed")(True), "seed: expected a whole number .* found true"),
    "no courses": (put("courses")({}), "courses: expected an object with one entry or more"),
    "courses as a list": (put("courses")([]), "courses: expected an object, found"),
    "no rounds": (
        put("courses", COURSE, "rounds")(0),
        "rounds: expected a whole number of at least 1, found 0",
    ),
    "a best round after the last": (
        put("courses", COURSE, "best_round")(10**6),
        "best_round: expected .* from 0 to",
    ),
    "a word of a course": (
        put("courses", COURSE, "round")(1),
        r"round: no such part; did you mean 'rounds'\?",
    ),
    "no device": (
        lambda one: one["environment"].pop("device"),
        "environment.device: expected a word or more",
    ),
    "no metrics": (put("metrics")({}), "metrics: expected an object with one entry or more"),
    "MRR above 1": (first_metrics(mrr=33.6), "mrr: expected a number from 0 to 1, found 33.6"),
    "MRR below 0": (first_metrics(mrr=-0.1), "mrr: expected a number from 0 to 1, found -0.1"),
    "no MRR": (first_metrics(mrr=None), "mrr: expected a number from 0 to 1, found nothing"),
    "Hits above 1": (
        first_metrics(**{"hits@10": 57.3}),
        r"hits@10: expected a number from 0 to 1, found 57.3",
    ),
    "no rank": (first_metrics(mr=0.5), "mr: expected a number of at least 1"),
    "no triples in test": (first_metrics(count=0), "count: expected a whole number of at least 1"),
    "an unknown metric": (first_metrics(mmr=0.5), "mmr: no such metric"),
    "another row's metrics": (renamed, "metrics: .* is missing; found nobody"),
    "a view that there is none of": (
        lambda one: one["metrics"].update({f"{one['method']} x": one["metrics"][one["method"]]}),
        "metrics: expected .*, found '.* x'",
    ),
    "validation": (put("valid")({}), "valid.mrr: expected a number from 0 to 1, found nothing"),
    "a site": (
        put("sites")({"a": {"mrr": 2, "count": 3}}),
        "sites.a.mrr: expected a number from 0 to 1, found 2",
    ),
    "an empty curve": (
        put("curve")([]),
        r"curve: expected one \[round, validation MRR, values, bytes\] or more",
    ),
    "a short point": (put("curve")([[5, 0.1, 0]]), r"curve\[0\]: expected \[round, validation MRR"),
    "a round twice": (
        put("curve")([[5, 0.1, 0, 0], [5, 0.2, 0, 0]]),
        r"curve\[1\], round: expected a whole number of at least 6, found 5",
    ),
    "a curve in per cent": (
        put("curve")([[5, 31.2, 0, 0]]),
        r"curve\[0\], validation MRR: expected a number from",
    ),
    "bytes below 0": (put("curve")([[5, 0.1, 0, -1]]), r"curve\[0\], bytes: expected a whole number"),
    "a curve without seconds": (lambda one: one.pop("seconds"), "seconds is missing; a record of a run has"),
    "a curve without bytes": (lambda one: one.pop("bytes"), "bytes is missing"),
    "no curve": (lambda one: one.pop("curve"), "curve is missing"),
    "seconds without a total": (lambda one: one["seconds"].pop("total"), "seconds.total: expected a number"),
    "one way only": (
        put("bytes")({"up": 3}),
        "bytes.down: expected a whole number of at least 0, found nothing",
    ),
    "another way": (put("bytes", "sideways")(3), "bytes.sideways: no such part"),
    "an unknown part": (put("curves")([]), r"curves: no such part; did you mean 'curve'\?"),
    "both old and new": (put("inferred")(["config"]), "inferred: a record with a curve has no such part"),
    "hits that fall": (first_metrics(**{"hits@1": 0.9}), "hits@3: expected at least the hits before it"),
    "MRR below its hits": (first_metrics(mrr=0.02), "mrr: expected .*, as its hits say, found 0.02"),
    "MRR above its hits": (first_metrics(mrr=0.99), "mrr: expected .*, as its hits say, found 0.99"),
    "validation's MRR above its hits": (put("valid", "mrr")(0.99), "valid.mrr: expected .*, as its hits say"),
    "another mean than that of sites": (
        lambda one: first_metrics(mrr=one["metrics"][one["method"]]["mrr"] + 0.001)(one),
        "mrr: expected the mean over sites",
    ),
    "no count": (lambda one: one["metrics"][one["method"]].pop("count"), "count: expected a whole number"),
    "another count": (first_metrics(count=7), "count: expected the sum over sites"),
    "no sites": (put("sites")({}), "sites: expected an object with one entry or more"),
    "more rounds than the cap": (put("courses", COURSE, "rounds")(9999), r"at most config.rounds \(200\)"),
    "a best round that nobody validated": (
        put("courses", COURSE, "best_round")(1),
        "best_round: expected a round of the curve, found 1",
    ),
    "a point after the last round": (
        lambda one: one["curve"].append([9999, 0.1, 10**9, 10**9]),
        "curve: expected no point after round",
    ),
    "validation beside the curve": (
        lambda one: one["curve"][0].__setitem__(1, 0.9),
        r"valid.mrr: expected the best of the curve \(0.9\)",
    ),
    "unknown courses": (
        lambda one: one["courses"].update({"x": one["courses"][COURSE]}),
        "courses: expected one, or one for each site",
    ),
    "markup": (
        put("environment", "device")("<img src=x> | evil |"),
        "environment.device: expected a line without any of",
    ),
    "two lines": (put("environment", "device")("cpu\n# Heading"), "environment.device: expected a line"),
    "ranks that are no digest": (put("ranks")("<script>"), "ranks: expected a digest of 32 hexadecimal"),
    "a config that is none": (put("config")([]), "config: expected an object, found"),
    "a config without a trainer": (
        lambda one: one["config"].pop("trainer"),
        "config.trainer: expected an object",
    ),
    "an unknown option": (put("config", "trainer", "speed")(2), "config: trainer.speed: no such option"),
    "an unknown method": (put("config", "method", "name")("fedx"), "config: method.name: "),
    "a number that is too large": (
        put("config", "trainer", "lr")(10**400),
        "config: trainer.lr: expected a number that fits",
    ),
    "other options": (
        put("config", "trainer", "lr")(0.5),
        r"its options are not those of fedlu-2023-.*: trainer.lr=0.5 \(preset: ",
    ),
    "an option that the preset leaves open": (
        put("config", "marks", "share")(0.5),
        r"its options are not those of .*: marks.share=0.5 \(preset: unset\)",
    ),
    "a row that is in no table": (
        put("method")("fedepp"),
        "no table of the catalogue has the row fedlu-2023/",
    ),
    "the key of another seed": (put("seed")(7), r"its options are not those of .*: seed=0 \(preset: 7\)"),
    "data that is left for others": (
        lambda one: (put("dataset")("fb15k-237-C5")(one), put("config", "data", "name")("fb15k-237-C5")(one)),
        "fb15k-237-C5 is left for others to check: nothing is run on it",
    ),
    "the same under another name": (
        put("config", "data", "name")("fb15k-237-R5"),
        "fb15k-237-R5 is left for others to check",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_record_that_is_wrong_says_where_and_why(tmp_path: Path, change: Change, message: str) -> None:
    path = written(tmp_path / "new.jsonl", OLD, changed(NEW, change))
    for read in (lambda: taken_in(ROOT, [path]), lambda: gone_on_with(ROOT, path)):
        with pytest.raises(DataError, match=message) as found:
            read()
        assert str(found.value).startswith(f"{path}, line 2: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("spent", "R@98")("soon"), 'spent.R@98: expected a number of at least 0, found "soon"'),
        (lambda one: one["spent"].pop("values@CG"), "spent.values@CG: expected a whole number"),
        (put("valid")({"mrr": 0.3}), "valid: a record without a curve has no such part"),
        (put("inferred")("config"), "inferred: expected a list of parts"),
        (lambda one: one.pop("inferred"), "spent: a record with a curve has no such part"),
    ],
)
def test_an_old_record_that_is_wrong(tmp_path: Path, change: Change, message: str) -> None:
    path = written(tmp_path / "old.jsonl", changed(OLD, change))
    with pytest.raises(DataError, match=f"line 1: {message}"):
        taken_in(ROOT, [path])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", r"expected an object, found \[1, 2\]"),
        ('{"protocol": ', "not JSON: "),
        ("\ufeff{}", "not JSON: "),
        ("{}", "no record of a run: protocol is missing"),
        (json.dumps(changed(NEW, first_metrics(mrr=float("nan")))), "not JSON: NaN is no number"),
        (json.dumps(changed(NEW, first_metrics(mrr=0.5))).replace("0.5", "1e999"), "found Infinity"),
        (json.dumps({**NEW, "model": "?"}).replace('"?"', "[" * 3000 + "]" * 3000), "neste|not JSON"),
    ],
)
def test_a_line_that_is_no_record(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "new.jsonl", NEW, "", line)
    with pytest.raises(DataError, match=f"new.jsonl, line 3: .*({message})"):
        taken_in(ROOT, [path])


def test_a_line_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(json.dumps(NEW).encode() + b'\n{"protocol": "\xff"}\n')
    with pytest.raises(DataError, match=r"line 2: not JSON: .* byte 0xff"):
        taken_in(ROOT, [path])


def test_files_that_are_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected files of records, as in `fedkge paper add new.jsonl`"):
        taken_in(ROOT, [])
    with pytest.raises(ConfigError, match=r"gone.jsonl: no such file"):
        taken_in(ROOT, [tmp_path / "gone.jsonl"])
    with pytest.raises(DataError, match=r"empty.jsonl: expected a record in each line, found none"):
        taken_in(ROOT, [written(tmp_path / "empty.jsonl", "")])
    assert gone_on_with(ROOT, tmp_path / "gone.jsonl") == {}


def test_shared_negatives_and_new_seeds_are_taken_in(tmp_path: Path) -> None:
    shared = changed(NEW, put("config", "trainer", "chunk")(128))
    other = changed(NEW, lambda one: (put("seed")(9)(one), put("config", "seed")(9)(one)))
    found = taken_in(ROOT, [written(tmp_path / "a.jsonl", shared), written(tmp_path / "b.jsonl", other)])
    assert found == {f"{key_of(NEW)}/shared": shared, key_of(other): other}


# Lines that a killed process has left, and files that are written together


def test_a_torn_last_line_is_replaced_and_only_where_more_is_added(tmp_path: Path) -> None:
    path = written(tmp_path / "new.jsonl", OLD)
    with path.open("a") as file:
        file.write(json.dumps(NEW)[:100])
    with pytest.raises(DataError, match="line 2: not JSON"):
        taken_in(ROOT, [path])
    assert gone_on_with(ROOT, path) == {place_of(OLD): OLD}
    append(path, NEW)
    assert taken_in(ROOT, [path]) == {place_of(OLD): OLD, place_of(NEW): NEW}


def test_a_last_line_without_its_end_stays(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text(json.dumps(OLD))
    append(path, NEW)
    assert taken_in(ROOT, [path]) == {place_of(OLD): OLD, place_of(NEW): NEW}


def test_where_one_file_cannot_be_written_none_is(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text("before")
    (tmp_path / ".second.jsonl.part").mkdir()
    with pytest.raises(IsADirectoryError):
        publish_all({first: "after", second: "after"})
    assert first.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".second.jsonl.part", "first.jsonl"]


def test_a_broken_file_of_the_checkout_keeps_others_from_being_written(tmp_path: Path) -> None:
    old = tmp_path / FOLDER / file_of(OLD)
    old.parent.mkdir(parents=True)
    old.write_text("{\n{\n")
    with pytest.raises(DataError, match="line 1: not JSON"):
        write_records(tmp_path, [NEW, OLD])
    assert [path.name for path in old.parent.iterdir()] == [old.name]


def test_two_records_of_one_run_are_refused_unless_they_are_equal(tmp_path: Path) -> None:
    other = changed(NEW, put("seconds", "total")(NEW["seconds"]["total"] + 1))
    same = written(tmp_path / "same.jsonl", NEW, NEW)
    assert list(taken_in(ROOT, [same])) == [place_of(NEW)]
    twice = written(tmp_path / "twice.jsonl", NEW, other)
    with pytest.raises(DataError, match=f"line 2: another record of {place_of(NEW)} than in line 1"):
        taken_in(ROOT, [twice])
    apart = written(tmp_path / "apart.jsonl", other)
    with pytest.raises(
        DataError, match=f"apart.jsonl: another record of {place_of(NEW)} than in a file before"
    ):
        taken_in(ROOT, [same, apart])


def test_what_is_replaced_is_told(tmp_path: Path) -> None:
    other = changed(NEW, first_metrics(mrr=0.5))
    mrr = NEW["metrics"][NEW["method"]]["mrr"]
    assert replaced({place_of(NEW): NEW}, {place_of(NEW): NEW}) == []
    assert replaced({}, {place_of(NEW): NEW}) == []
    told = replaced({place_of(NEW): NEW}, {place_of(NEW): other})
    assert told == [f"{place_of(NEW)}: MRR {mrr:.4f} becomes 0.5000"]
