"""Bad input names the file, the line, what was found and what was expected."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedkge.errors import DataError, DataWarning
from fedkge.graphs import files
from fedkge.graphs.files import read_federation, read_graph

GOOD = b"a\tr\tb\n"
MANY = b"".join(b"a\tr\tb%d\n" % i for i in range(1041))


def write(folder: Path, **contents: bytes) -> None:
    for name, content in contents.items():
        (folder / name.replace("__", ".")).write_bytes(content)


def refuses(path: Path, message: str, **options: bool) -> None:
    with pytest.raises(DataError) as caught:
        read_graph(path, **options)
    assert re.search(message, str(caught.value)), caught.value


@pytest.mark.parametrize("pyarrow", [True, False])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.tsv", MANY + b"a\tr\n", r"train\.tsv:1042: expected 3 tab-separated fields, found 2$"),
        ("train.tsv", b"a r b\n", r"train\.tsv:1: expected 3 tab-separated fields, found 1$"),
        (
            "train.tsv",
            GOOD + b"a\tr\tc\t1\n",
            r"train\.tsv:2: expected 3 tab-separated fields, found 4; line 1 had 3 fields$",
        ),
        ("train.tsv", b"a\tr\tc\t1\n" + GOOD, r"tsv:2: expected 4 .*, found 3; line 1 had 4 fields$"),
        (
            "train.tsv",
            GOOD + b"a\tr\t \n",
            r"tsv:2: expected the name of a tail, found a field of white space",
        ),
        (
            "train.csv",
            b"a,r,b\n\xc2\xa0,r,b\n",
            r"csv:2: expected the name of a head, found a field of white",
        ),
        (
            "train.csv",
            b"head,relation,tail,secret\na,r,b,1\n",
            r"csv:1: expected no other columns, found 'secret'; say which ones to read, .*data\.table",
        ),
        ("train.csv", b"a,r,b\na,r,b,c,d\n", r"train\.csv:2: expected 3 comma-separated fields, found 5$"),
        (
            "train.tsv",
            GOOD + b"a\t\tc\n",
            r"train\.tsv:2: expected the name of a relation, found an empty field",
        ),
        ("train.tsv", GOOD + b"\n" + b"c\tr\td\n", r"train\.tsv:2: expected a triple, found a blank line"),
        ("train.tsv", GOOD + b"a\tr\t\xff\n", r"train\.tsv:2: expected UTF-8, found byte 0xff after 4 bytes"),
        ("train.csv", b'a,r,b\n"a"x,r,b\n', r"train\.csv:2: expected quoting by RFC 4180"),
        (
            "train.csv",
            b'a,r,b\na,r,"b\n',
            r"train\.csv:2: expected quoting by RFC 4180, found unexpected end",
        ),
        (
            "train.tsv",
            b"a\tr\tb\tyes\n",
            r"train\.tsv:1: expected 0, 1, true, false or nothing .* found 'yes'",
        ),
        ("train.tsv", b"", r"train\.tsv: expected triples, found none"),
        ("train.tsv", b"\n\n", r"train\.tsv: expected triples, found none"),
        ("train.csv", b"head,relation,tail\n", r"train\.csv: expected triples, found none"),
        ("train.tsv.gz", b"", r"train\.tsv\.gz: expected triples, found none"),
        ("train.tsv.gz", gzip.compress(MANY)[:-20], r"train\.tsv\.gz: the gzip data ends too early"),
        ("train.tsv.gz", MANY, r"train\.tsv\.gz: expected gzip data, found something else"),
        ("train.tsv.gz", gzip.compress(MANY)[:40] + b"\xff" * 99, r"train\.tsv\.gz: .*gzip data"),
    ],
)
def test_bad_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pyarrow: bool, name: str, content: bytes, message: str
) -> None:
    if not pyarrow:
        monkeypatch.setattr(files, "find_spec", lambda name: None)
    (tmp_path / name).write_bytes(content)
    refuses(tmp_path, message)


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_marks_belong_in_train(tmp_path: Path, suffix: str) -> None:
    separator = b"," if suffix == ".csv" else b"\t"
    (tmp_path / f"train{suffix}").write_bytes(separator.join([b"a", b"r", b"b"]))
    (tmp_path / f"valid{suffix}").write_bytes(separator.join([b"b", b"r", b"a", b"1"]))
    refuses(tmp_path, r"valid\.\w+:1: expected 3 .* found 4; marks of confidentiality belong in train")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.nt", b"<x:a> <x:r> <x:b> .\n<x:a> <x:r> .\n", r"train\.nt[.gz]*:2: "),
        ("train.nt", b"<x:a> <x:r> <x:b> .\n<x:a> <x:\xff> <x:b> .\n", r"train\.nt[.gz]*:2: .*UTF-8"),
        ("train.ttl", b"<x:a> <x:r> <x:b> .\n:a <x:r> <x:b> .\n", r"train\.ttl[.gz]*:2: "),
        ("train.nt", b"", r"train\.nt[.gz]*: expected triples between IRIs, found none"),
        (
            "train.nt",
            b"<urn:fedkge:%FF> <x:r> <x:b> .\n",
            r"train\.nt[.gz]*: expected a percent-encoded name",
        ),
        ("train.nt", b"<urn:fedkge:%20> <x:r> <x:b> .\n", r"expected a percent-encoded name"),
        ("train.parquet", b"PAR1 not quite", r"train\.parquet[.gz]*: expected Parquet, found something else"),
    ],
)
def test_bad_rdf_and_parquet(tmp_path: Path, name: str, content: bytes, message: str, packed: bool) -> None:
    (tmp_path / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(content) if packed else content)
    refuses(tmp_path, message)


@pytest.mark.parametrize("name", ["train.nt.gz", "train.parquet.gz"])
def test_bad_gzip(tmp_path: Path, name: str) -> None:
    packed = gzip.compress(b"".join(b"<x:%d> <x:r> <x:b> .\n" % i for i in range(5000)))
    (tmp_path / name).write_bytes(packed[:-30])
    refuses(tmp_path, r"gz: the gzip data ends too early")
    (tmp_path / name).write_bytes(b"<x:a> <x:r> <x:b> .\n")
    refuses(tmp_path, r"gz: expected gzip data, found something else")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"h": ["a"], "r": ["r"]}, "expected 3 or 4 columns"),
        ({"h": ["a"], "r": [[1]], "t": ["b"]}, "expected texts or numbers in column 'r', found list"),
        ({"h": ["a", "b"], "r": ["r", None], "t": ["b", "c"]}, "row 2: expected a name in column 'r'"),
        ({"h": ["a", ""], "r": ["r", "r"], "t": ["b", "c"]}, "row 2: expected a name in column 'h'"),
        ({"h": ["a", "\t "], "r": ["r", "r"], "t": ["b", "c"]}, "row 2: expected a name in column 'h'"),
        ({"h": ["a"], "r": ["r"], "t": ["b"], "weight": [1]}, "expected three columns and .* also 'weight'"),
        ({"Head": ["a"], "TAIL": ["b"], "w": [1], "relation": ["r"]}, "expected three columns .* also 'w'"),
        ({"h": ["a"], "H": ["r"], "t": ["b"]}, "expected columns with names of their own"),
        ({"h": ["a"], "r": ["r"], "t": ["b"], "mark": [2]}, "row 1: expected 0, 1, true, false .* found '2'"),
        ({"h": ["a"], "r": ["r"], "t": ["b"], "mark": [[1]]}, "expected marks .* in column 'mark'"),
        ({name: pa.array([], pa.string()) for name in "hrt"}, "expected triples, found none"),
    ],
)
def test_bad_parquet_columns(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "train.parquet")
    refuses(tmp_path, rf"train\.parquet: {message}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train2id__txt": b"2\n0 1 0\n"}, r"train2id\.txt: expected 2 lines after the first, found 1"),
        ({"train2id__txt": b"0 1 0\n"}, r"train2id\.txt:1: expected the number of lines"),
        ({"train2id__txt": b"1\n0 0 1\n"}, r"train2id\.txt:2: expected a relation below 1, found 1"),
        ({"train2id__txt": b"1\n0 1\n"}, r"train2id\.txt:2: expected three ids"),
        ({"entity2id__txt": b"2\na\t0\nb\t0\n"}, r"entity2id\.txt:3: expected each id once"),
        ({"entity2id__txt": b"2\na\t0\nb\t2\n"}, r"entity2id\.txt: expected the ids 0 to 1, found 2"),
        ({"entity2id__txt": b"2\na\t0\na\t1\n"}, r"entity2id\.txt: expected each name once"),
        ({"relation2id__txt": b"1\n7\n"}, r"relation2id\.txt:2: expected a name and its id"),
        ({"valid2id__txt": b"1\n0 1 0\n"}, r"valid2id\.txt: 1 triple also in .*train2id\.txt"),
    ],
)
def test_bad_openke(tmp_path: Path, changed: dict[str, bytes], message: str) -> None:
    write(
        tmp_path,
        entity2id__txt=b"2\na\t0\nb\t1\n",
        relation2id__txt=b"1\nr\t0\n",
        train2id__txt=b"1\n0 1 0\n",
    )
    assert len(read_graph(tmp_path).train) == 1
    write(tmp_path, **changed)
    refuses(tmp_path, message)


def test_openke_without_names(tmp_path: Path) -> None:
    write(tmp_path, train2id__txt=b"1\n0 1 0\n")
    refuses(tmp_path, r"entity2id\.txt: No such file")


def test_unseen_names_are_counted(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=GOOD, valid__tsv=b"b\tr\ta\n", test__tsv=b"a\tq\tb\nx\tr\ty\nb\tr\tx\n")
    message = r"test\.tsv: 2 entities such as 'x' and 1 relation such as 'q' never seen in .*train\.tsv"
    with pytest.warns(DataWarning, match=message):
        graph = read_graph(tmp_path)
    assert list(graph.entities) == ["a", "b", "x", "y"]
    refuses(tmp_path, message, strict=True)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (
            {"test__tsv": b"b\tr\ta\na\tr\tb\na\tr\tb\n"},
            r"test\.tsv: 1 triple also .*train\.tsv, such as \(a, r, b\)",
        ),
        ({"valid__csv": b"a,r,b\nc,r,d\n"}, r"valid\.csv: 2 triples also in .*train\.tsv"),
        (
            {"valid__tsv": b"b\tr\ta\n", "test__nt": b"<urn:fedkge:b> <urn:fedkge:r> <urn:fedkge:a> .\n"},
            r"test\.nt: 1 triple also in .*valid\.tsv, such as \(b, r, a\)",
        ),
    ],
)
def test_leaks(tmp_path: Path, contents: dict[str, bytes], message: str) -> None:
    write(tmp_path, train__tsv=GOOD + b"c\tr\td\n", **contents)
    refuses(tmp_path, message)


def test_folders_that_are_no_graph(tmp_path: Path) -> None:
    refuses(tmp_path / "nowhere", "nowhere: no such file or folder")
    refuses(tmp_path, r"expected train\{\.tsv,.*found nothing")
    write(tmp_path, test__tsv=GOOD)
    refuses(tmp_path, r"expected train\{.*found test\.tsv")
    write(tmp_path, train__txt=GOOD)
    refuses(tmp_path, r"train\.txt: expected a suffix of \.tsv .*found '\.txt'; rename")
    refuses(tmp_path / "train.txt", r"train\.txt: expected a suffix")


def test_two_files_for_one_split(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=GOOD, train__csv=b"a,r,b\n")
    refuses(tmp_path, r"expected one file for train, found train\.csv and train\.tsv")


def test_a_misspelled_split(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=GOOD, validation__tsv=b"b\tr\ta\n")
    refuses(tmp_path, r"validation\.tsv: expected train, valid or test, .*did you mean 'valid'\?")


def test_federations(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_federation(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected a folder or a file per site, found none"):
        read_federation(tmp_path)
    write(tmp_path, brain__tsv=GOOD)
    assert list(read_federation(tmp_path)) == ["brain"]
    write(tmp_path, brain__csv=b"a,r,b\n")
    with pytest.raises(DataError, match=r"expected one graph per site, found brain\.csv and brain\.tsv"):
        read_federation(tmp_path)
    (tmp_path / "brain.csv").rename(tmp_path / "map.json")
    with pytest.raises(DataError, match=r"map\.json: expected a suffix"):
        read_federation(tmp_path)


def test_a_misspelt_train_is_suggested(tmp_path: Path) -> None:
    write(tmp_path, valid__tsv=GOOD, trian__tsv=GOOD)
    refuses(
        tmp_path, r"expected train\{.*found trian\.tsv, valid\.tsv; is trian\.tsv meant to be train\.tsv\?$"
    )
