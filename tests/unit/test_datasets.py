"""Data sets by name: found in FEDKGE_DATA, or downloaded, checked and kept; never half."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs import datasets
from fedkge.graphs.catalogue import DATASETS, Dataset, Dealt, Remote, archive, files, openke
from fedkge.graphs.datasets import cache, find, folder, load, obtain
from fedkge.graphs.files import read_federation
from fedkge.graphs.graph import Split
from fedkge.graphs.overview import overview
from fedkge.graphs.partition import by_cluster

TRAIN, VALID, TEST = b"a\tr\tb\nb\tr\tc\nc\ts\ta\n", b"a\tr\tc\n", b"c\tr\tb\nb\ts\ta\n"
COUNTS = (3, 1, 2)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    monkeypatch.setenv("FEDKGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def served(web):
    web.files |= {"/toy/train.txt": TRAIN, "/toy/valid.txt": VALID, "/toy/test.txt": TEST}
    return web


def sums(*contents: bytes) -> list[str]:
    return [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]


def toy(web, counts=COUNTS, checksums=(), mirrors=()) -> Dataset:
    return Dataset("toy", counts, (files(f"{web.address}/toy", *checksums), *mirrors))


def packed(**members: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"{name}.txt")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def test_files_are_downloaded_once(served, home):
    dataset = toy(served, checksums=sums(TRAIN, VALID, TEST))
    federation = read_federation(folder(dataset))
    assert list(federation) == ["toy"]
    assert [len(part) for part in federation["toy"].splits().values()] == [3, 1, 2]
    assert [path.name for path in home.iterdir()] == ["toy"]
    folder(dataset)
    assert len(served.asked) == 3


def test_archives_are_unpacked(served, home):
    served.files["/toy.tar.gz"] = packed(train=TRAIN, valid=VALID, test=TEST)
    where = folder(Dataset("toy", COUNTS, (archive(f"{served.address}/toy.tar.gz"),)))
    assert sorted(path.name for path in where.iterdir()) == ["test.tsv", "train.tsv", "valid.tsv"]
    assert (where / "train.tsv").read_bytes() == TRAIN


def test_openke_folders_are_understood(web):
    content = {
        "entity2id": b"2\na\t0\nb\t1\n", "relation2id": b"1\nr\t0\n", "train2id": b"2\n0 1 0\n1 1 0\n",
        "valid2id": b"1\n1 0 0\n", "test2id": b"1\n0 0 0\n",
    }  # fmt: skip
    web.files |= {f"/toy/{name}.txt": body for name, body in content.items()}
    where = folder(Dataset("toy", (2, 1, 1), (openke(f"{web.address}/toy"),)))
    graph = read_federation(where)["toy"]
    assert (graph.n_entities, len(graph.train), len(graph.valid), len(graph.test)) == (2, 2, 1, 1)


def test_wrong_counts_are_refused_and_removed(served, home):
    with pytest.raises(DataError, match=r"3/1/2 triples in train/valid/test, expected 3/1/3") as failure:
        folder(toy(served, (3, 1, 3)))
    assert "toy could not be downloaded" in str(failure.value)
    assert list(home.iterdir()) == []


def test_wrong_content_is_refused(served, home):
    served.files["/toy/valid.txt"] = b"<html>sorry</html>\n"  # the right count
    with pytest.raises(DataError, match=r"valid\.txt: wrong content: sha256"):
        folder(toy(served, checksums=sums(TRAIN, VALID, TEST)))
    assert not (home / "toy").exists()


def test_a_damaged_archive_is_removed(web, home):
    web.files["/toy.tar.gz"] = packed(train=TRAIN, valid=VALID, test=TEST)[:100]
    dataset = Dataset("toy", COUNTS, (archive(f"{web.address}/toy.tar.gz"),))
    with pytest.raises(DataError, match="no archive, or a damaged one"):
        folder(dataset)
    assert list(home.iterdir()) == []
    web.files["/toy.tar.gz"] = packed(train=TRAIN, valid=VALID, test=TEST)
    assert folder(dataset).is_dir()


def test_an_interrupted_download_goes_on(served, home):
    served.stop_after = 10
    dataset = toy(served)
    with pytest.raises(DataError, match=r"train\.txt: the download was interrupted"):
        folder(dataset)
    assert not (home / "toy").exists()
    served.stop_after = None
    assert (folder(dataset) / "train.tsv").read_bytes() == TRAIN
    assert served.asked[1] == ("/toy/train.txt", "bytes=10-")
    assert [path.name for path in home.iterdir()] == ["toy"]


def test_what_was_fetched_is_not_fetched_again(served):
    test = served.files.pop("/toy/test.txt")
    with pytest.raises(DataError, match=r"test\.txt: the server answered 404"):
        folder(toy(served))
    served.files["/toy/test.txt"] = test
    folder(toy(served))
    assert [path for path, _ in served.asked].count("/toy/train.txt") == 1


def test_another_address_is_tried_and_said(web):
    web.files["/mirror.tar.gz"] = packed(train=TRAIN, valid=VALID, test=TEST)
    dataset = toy(web, mirrors=(archive(f"{web.address}/mirror.tar.gz"),))
    with pytest.warns(DataWarning, match=r"toy/train\.txt: the server answered 404 .*; took another address"):
        where = folder(dataset)
    assert (where / "test.tsv").read_bytes() == TEST


def test_no_network_says_what_to_do():
    remote = Remote("http://127.0.0.1:1/train.txt", "train.tsv")
    with pytest.raises(DataError, match=r"set FEDKGE_DATA to the folder above\n  http.*cannot be reached"):
        folder(Dataset("toy", None, ((remote,),)))


def test_own_data_come_first(monkeypatch, tmp_path):
    own = tmp_path / "own"
    (own / "umls").mkdir(parents=True)
    (own / "umls" / "train.tsv").write_bytes(TRAIN)
    monkeypatch.setenv("FEDKGE_DATA", str(own))
    assert len(load("UMLS")["umls"].train) == 3
    for site in "ab":
        (own / "fb15k-237-C3" / site).mkdir(parents=True)
        (own / "fb15k-237-C3" / site / "train.tsv").write_bytes(TRAIN)
    assert list(load("fb15k-237-c3")) == ["a", "b"]


def test_own_data_that_are_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"FEDKGE_DATA: .*missing: no such folder"):
        load("umls")


@pytest.mark.parametrize("part", ["R3", "R10", "C3", "C10"])
def test_federations_of_fedlu_say_where_they_come_from(part, tmp_path, monkeypatch):
    clone, source = "`git clone https://github.com/nju-websoft/FedLU`", f"FedLU/Data/FB15k-237/{part}FL"
    convert = f"`fedkge data convert {source} %s/fb15k-237-{part} --from fedlu`"
    with pytest.raises(DataError) as found:
        load(f"fb15k-237-{part}")
    told = f"fb15k-237-{part} is not here: FEDKGE_DATA is not set; {clone}, then {convert % 'DATA'}, and set"
    assert str(found.value) == f"{told} FEDKGE_DATA to DATA"
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    with pytest.raises(DataError) as found:
        load(f"fb15k-237-{part}")
    told = f"fb15k-237-{part} is not here: {tmp_path} does not have it; {clone}, then {convert % tmp_path}"
    assert str(found.value) == told


def test_a_federation_without_published_files_says_what_it_is():
    with pytest.raises(DataError) as found:
        load("ddb14-T5")
    said = str(found.value)
    assert said.startswith(
        "ddb14-T5 is not here and cannot be downloaded: FEDKGE_DATA is not set; expected a"
    )
    assert "five sites, as in FedR" in said
    assert "`fedkge data partition ddb14 OUT --by triple --sites 5`" in said
    assert "authors publish" not in said


def test_unknown_names():
    with pytest.raises(DataError, match="no data set is named 'wn18r'; did you mean 'wn18rr'"):
        find("wn18r")
    with pytest.raises(DataError, match=r"uml: no such file or folder, .*; did you mean 'umls'"):
        obtain("uml")


def test_a_path_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("umls").mkdir()
    (Path("umls") / "train.tsv").write_bytes(TRAIN)
    assert len(obtain("umls")["umls"].train) == 3


def test_a_federation_is_dealt_out_of_a_graph_once(tmp_path, home, monkeypatch):
    lines = [f"e{i % 30}\tr{i % 7}\te{(3 * i + i // 30) % 30}\n" for i in range(400)]
    (tmp_path / "data" / "umls").mkdir(parents=True)
    (tmp_path / "data" / "umls" / "train.tsv").write_text("".join(dict.fromkeys(lines)))
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path / "data"))
    whole = len(load("umls")["umls"].train)
    dataset = Dataset("umls-R3", dealt=Dealt("umls", 3))
    federation = read_federation(folder(dataset))
    assert [graph.n_relations for graph in federation.values()] == [2, 2, 3]
    assert sum(len(graph.all()) for graph in federation.values()) == whole
    assert all(len(graph.valid) and len(graph.test) for graph in federation.values())
    assert [path.name for path in home.iterdir()] == ["umls-R3"], "and nothing half made"
    counts = tuple(sum(len(graph.split(one)) for graph in federation.values()) for one in Split)
    (tmp_path / "data" / "umls" / "train.tsv").unlink()
    assert folder(dataset) == home / "umls-R3", "made once"
    (tmp_path / "data" / "umls" / "train.tsv").write_text("".join(dict.fromkeys(lines[:-9])))
    other = Dataset("umls-r3", counts, dealt=Dealt("umls", 3))
    with pytest.raises(
        DataError, match=r"umls-r3: dealt out of umls, it has .* umls is not the published one"
    ):
        folder(other)
    assert not (home / "umls-r3").exists()


def test_the_catalogue_is_whole():
    for name in ("fb15k", "fb15k-237", "nell-995", "wn18rr", "yago3-10", "umls", "kinship", "ddb14"):
        dataset = find(name)
        assert dataset.counts is not None
        for remotes in dataset.sources:
            assert all(remote.url.startswith("https://") for remote in remotes)
            assert all(bool(remote.file) != bool(remote.members) for remote in remotes)
    assert all(key == dataset.name.lower() for key, dataset in DATASETS.items())


def test_the_catalogue_knows_the_files_of_pykeen():
    pykeen = find_spec("pykeen")
    if pykeen is None or pykeen.origin is None:
        pytest.skip("pykeen is not installed")
    where = Path(pykeen.origin).parent / "datasets"
    for name, pack in (("umls", "umls"), ("kinship", "kinships")):
        dataset = find(name)
        for remote, count in zip(dataset.sources[0], dataset.counts, strict=True):
            content = (where / pack / remote.url.rsplit("/", 1)[1]).read_bytes()
            assert remote.checksum == sums(content)[0]
            assert content.count(b"\n") == count


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, Path("/x/fedkge")),
        ("linux", {"HOME": "/h"}, Path("/h/.cache/fedkge")),
        ("darwin", {"HOME": "/h"}, Path("/h/Library/Caches/fedkge")),
        ("win32", {"LOCALAPPDATA": "/l"}, Path("/l/fedkge/Cache")),
    ],
)
def test_the_cache_is_where_the_platform_keeps_such_files(monkeypatch, platform, variables, expected):
    for name in ("FEDKGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(datasets.sys, "platform", platform)
    assert cache() == expected


REAL = os.environ.get("FEDKGE_DATA")
real = pytest.mark.skipif(not REAL, reason="set FEDKGE_DATA to the folder with the real graphs")


@pytest.mark.slow
@real
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
@pytest.mark.parametrize(
    ("name", "two", "every", "mean"),
    [
        ("fb15k-237-C3", 4_153, 94, 1_447),
        ("fb15k-237-C10", 4_827, 0, 224.5),
        ("fb15k-237-R3", 13_287, 9_957, 11_067),
        ("fb15k-237-R10", 13_662, 737, 5_876),
    ],
)
def test_the_federations_of_fedlu_overlap_as_published(monkeypatch, name, two, every, mean):
    monkeypatch.setenv("FEDKGE_DATA", REAL)
    found = overview(load(name))
    assert found.entities == 14_541
    assert (found.shared_by_two, found.shared_by_all) == (two, every)
    assert found.mean_entity_overlap == pytest.approx(mean, abs=0.5)


@pytest.mark.slow
@real
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
def test_clustering_finds_the_sites_of_fedlu(monkeypatch):
    """Clustering FB15k-237 anew gives the relations of the published C3 sites, for both seeds tried."""
    monkeypatch.setenv("FEDKGE_DATA", REAL)
    published = {frozenset(graph.relations) for graph in load("fb15k-237-C3").values()}
    (whole,) = load("fb15k-237").values()
    assert tuple(map(len, whole.splits().values())) == find("fb15k-237").counts
    for seed in (0, 1):
        assert {frozenset(part.relations) for part in by_cluster(whole, 3, seed).values()} == published


@pytest.mark.slow
@real
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
def test_nell_is_dealt_out(monkeypatch):
    monkeypatch.setenv("FEDKGE_DATA", REAL)
    assert [graph.n_relations for graph in load("nell-995-R3").values()] == [66, 66, 68]
