"""The graphs that have a name: where they lie in public, and how to tell that they arrived whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedkge.graphs.graph import Split


@dataclass(frozen=True)
class Remote:
    """One address: a file of the data set, or an archive that holds several."""

    url: str
    file: str = ""  #: its name in the data set's folder; empty for an archive
    members: Mapping[str, str] = field(default_factory=dict)  #: of an archive: name in the folder -> its path
    checksum: str = ""  #: `sha256:<hex>` or `md5:<hex>` of what the address gives; empty when none is known


@dataclass(frozen=True)
class Dealt:
    """A federation that is made of a graph: its relations are dealt out at random, as for FedE's Fed3."""

    graph: str  #: its name
    sites: int
    seed: int = 0
    ratio: str = "8:1:1"  #: train, valid and test at each site


@dataclass(frozen=True)
class Published:
    """Files of a paper's authors, in a form of their own that `fedkge data convert --from` reads."""

    repository: str  #: its address; the last part names the folder that a clone of it makes
    folder: str  #: where in it the data lies
    origin: str  #: whose form it is, as `--from` names it


@dataclass(frozen=True)
class Dataset:
    """A graph or federation that has a name."""

    name: str
    counts: tuple[int, int, int] | None = None  #: lines of train, valid and test; None: not checked
    sources: tuple[tuple[Remote, ...], ...] = ()  #: alternatives, tried in turn; none: cannot be downloaded
    leaks: bool = False  #: triples stand in two splits: they are left out of the later one
    dealt: Dealt | None = None  #: what it is made of where it is first used
    published: Published | None = None  #: what users convert it from
    about: str = ""  #: what it is, if it can be neither downloaded nor converted


def files(base: str, *checksums: str) -> tuple[Remote, ...]:
    """train.txt, valid.txt and test.txt under one address."""
    return tuple(
        Remote(f"{base}/{split}.txt", f"{split}.tsv", checksum=checksum)
        for split, checksum in zip(Split, checksums or ("", "", ""), strict=True)
    )


def openke(base: str) -> tuple[Remote, ...]:
    """The five files of an OpenKE folder under one address."""
    names = (f"{kind}2id.txt" for kind in ("entity", "relation", *Split))
    return tuple(Remote(f"{base}/{name}", name) for name in names)


def archive(url: str, folder: str = "") -> tuple[Remote, ...]:
    """One archive with train.txt, valid.txt and test.txt, at its top or in a folder of it."""
    return (Remote(url, members={f"{split}.tsv": f"{folder}{split}.txt" for split in Split}),)


# Checksums of KnowledgeGraphEmbedding's files are those that torchdrug publishes for them; those of UMLS
# and Kinship are of the files that the pykeen 1.11.1 package brings.
_EMBEDDING = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/master/data"
_CONVE = "https://github.com/TimDettmers/ConvE/raw/master"
_PYKEEN = "https://raw.githubusercontent.com/pykeen/pykeen/v1.11.1/src/pykeen/datasets"
_OPENKE = "https://raw.githubusercontent.com/thunlp/OpenKE/OpenKE-PyTorch/benchmarks"
_PATHCON = "https://raw.githubusercontent.com/hwwang55/PathCon/master/data"

ATLAS = Dataset("atlas")  #: part of this package

FB15K = Dataset(
    "fb15k",
    (483_142, 50_000, 59_071),
    (
        files(
            f"{_EMBEDDING}/FB15k",
            "md5:5a87195e68d7797af00e137a7f6929f2",
            "md5:275835062bb86a86477a3c402d20b814",
            "md5:71098693b0efcfb8ac6cd61cf3a3b505",
        ),
        archive("https://data.dgl.ai/dataset/FB15k.zip", "FB15k/"),
    ),
)

FB15K_237 = Dataset(
    "fb15k-237",
    (272_115, 17_535, 20_466),
    (
        files(
            f"{_EMBEDDING}/FB15k-237",
            "md5:c05b87b9ac00f41901e016a2092d7837",
            "md5:6a94efd530e5f43fcf84f50bc6d37b69",
            "md5:f5bdf63db39f455dec0ed259bb6f8628",
        ),
        archive(f"{_CONVE}/FB15k-237.tar.gz"),
    ),
)

WN18RR = Dataset(
    "wn18rr",
    (86_835, 3_034, 3_134),
    (
        files(
            f"{_EMBEDDING}/wn18rr",
            "md5:35e81af3ae233327c52a87f23b30ad3c",
            "md5:74a2ee9eca9a8d31f1a7d4d95b5e0887",
            "md5:2b45ba1ba436b9d4ff27f1d3511224c9",
        ),
        archive(f"{_CONVE}/WN18RR.tar.gz"),
    ),
)

YAGO3_10 = Dataset(
    "yago3-10",
    (1_079_040, 5_000, 5_000),
    (
        files(
            f"{_EMBEDDING}/YAGO3-10",
            "md5:a9da8f583ec3920570eeccf07199229a",
            "md5:2d679a906f2b1ac29d74d5c948c1ad09",
            "md5:14bf97890b2fee774dbce5f326acd189",
        ),
        archive(f"{_CONVE}/YAGO3-10.tar.gz"),
    ),
)

NELL_995 = Dataset("nell-995", (149_678, 543, 3_992), (openke(f"{_OPENKE}/NELL-995"),))

UMLS = Dataset(
    "umls",
    (5_216, 652, 661),
    (
        files(
            f"{_PYKEEN}/umls",
            "sha256:873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
            "sha256:025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
            "sha256:a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
        ),
    ),
)

KINSHIP = Dataset(
    "kinship",
    (8_544, 1_068, 1_074),
    (
        files(
            f"{_PYKEEN}/kinships",
            "sha256:738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
            "sha256:c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
            "sha256:05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
        ),
    ),
)

DDB14 = Dataset("ddb14", (36_561, 4_000, 4_000), (files(f"{_PATHCON}/DDB14"),))

#: the exact splits of FedLU
FEDERATIONS = tuple(
    Dataset(
        f"fb15k-237-{part}",
        published=Published("https://github.com/nju-websoft/FedLU", f"Data/FB15k-237/{part}FL", "fedlu"),
    )
    for part in ("R3", "R10", "C3", "C10")
)

DDB14_T5 = Dataset(
    "ddb14-T5",
    leaks=True,
    about="ddb14 with its triples dealt at random to five sites, as in FedR; no published files that "
    "`fedkge data convert` reads are known to have this split; "
    "`fedkge data partition ddb14 OUT --by triple --sites 5` makes another like it",
)

#: the project's own split: FedEC's, which PFedEG uses, is not public
NELL_995_R3 = Dataset("nell-995-R3", (123_371, 15_421, 15_421), dealt=Dealt("nell-995", 3))

DATASETS: Mapping[str, Dataset] = {
    dataset.name.lower(): dataset
    for dataset in (
        ATLAS,
        FB15K,
        FB15K_237,
        WN18RR,
        YAGO3_10,
        NELL_995,
        UMLS,
        KINSHIP,
        DDB14,
        *FEDERATIONS,
        DDB14_T5,
        NELL_995_R3,
    )
}
