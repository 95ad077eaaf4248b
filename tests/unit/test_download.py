"""Downloads against a local server: resumed, refused, cut off, wrong; and archives not to be trusted."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fedkge.errors import DataError
from fedkge.graphs.download import extract, fetch

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "file"


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_file_arrives_and_nothing_else_stays(web, target):
    web.files["/file"] = CONTENT
    fetch(f"{web.address}/file", target, sha256(CONTENT))
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_md5_is_understood(web, target):
    web.files["/file"] = CONTENT
    fetch(f"{web.address}/file", target, f"md5:{hashlib.md5(CONTENT).hexdigest()}")
    assert target.exists()


def test_an_interrupted_download_goes_on_where_it_stopped(web, target):
    web.files["/file"] = CONTENT
    web.stop_after = 300_000
    with pytest.raises(DataError, match=r"/file: the download was interrupted .* run it again to go on"):
        fetch(f"{web.address}/file", target, sha256(CONTENT))
    assert not target.exists()
    web.stop_after = None
    fetch(f"{web.address}/file", target, sha256(CONTENT))
    assert target.read_bytes() == CONTENT
    assert web.asked == [("/file", None), ("/file", "bytes=300000-")]


def test_a_server_without_ranges_starts_again(web, target):
    web.files["/file"] = CONTENT
    web.stop_after, web.ranges = 1000, False
    with pytest.raises(DataError, match="interrupted"):
        fetch(f"{web.address}/file", target)
    web.stop_after = None
    fetch(f"{web.address}/file", target)
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_taken(web, target):
    web.files["/file"] = CONTENT
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT)
    fetch(f"{web.address}/file", target, sha256(CONTENT))
    assert target.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(web, target):
    web.files["/file"] = CONTENT
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT + b"more")
    fetch(f"{web.address}/file", target)
    assert target.read_bytes() == CONTENT


def test_a_part_that_does_not_fit_is_thrown_away(web, target):
    web.files["/file"] = CONTENT
    web.range_start = 7
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT[:1000])
    fetch(f"{web.address}/file", target)
    assert target.read_bytes() == CONTENT


def test_wrong_content_is_removed(web, target):
    web.files["/file"] = b"<html>not what you wanted</html>"
    with pytest.raises(DataError, match=r"/file: wrong content: sha256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        fetch(f"{web.address}/file", target, sha256(CONTENT))
    assert list(target.parent.iterdir()) == []


def test_a_wrong_part_is_found_out_and_the_next_attempt_succeeds(web, target):
    web.files["/file"] = CONTENT
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="wrong content"):
        fetch(f"{web.address}/file", target, sha256(CONTENT))
    fetch(f"{web.address}/file", target, sha256(CONTENT))
    assert target.read_bytes() == CONTENT


def test_a_missing_file(web, target):
    with pytest.raises(DataError, match="/nothing: the server answered 404"):
        fetch(f"{web.address}/nothing", target)
    assert not target.exists()


def test_no_network(web, target):
    web.files["/file"] = CONTENT
    with pytest.raises(
        DataError, match=r"http://127.0.0.1:1/file: cannot be reached \(.*\); check the network"
    ):
        fetch("http://127.0.0.1:1/file", target)


def test_a_silent_server(target):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(DataError, match="timed out"):
            fetch(url, target, timeout=0.2)


def test_a_place_that_cannot_be_written(web, tmp_path):
    web.files["/file"] = CONTENT
    (tmp_path / "cache").write_text("a file, where a folder should be")
    with pytest.raises(DataError, match="cache: cannot be written"):
        fetch(f"{web.address}/file", tmp_path / "cache" / "file")


def test_a_terminal_gets_a_progress_bar(web, target, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    web.files["/file"] = CONTENT
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    fetch(f"{web.address}/file", target)
    assert "file" in terminal.getvalue()


def tar(path: Path, **members: bytes | str) -> Path:
    """An archive of files; a string makes a link to that place."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("_", "/"))
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def test_members_are_taken_from_tar_and_zip(tmp_path):
    tar(tmp_path / "a.tgz", **{"._data_train.txt": b"x", "other": b"y"})
    extract(tmp_path / "a.tgz", {tmp_path / "one": "data/train.txt"})
    assert (tmp_path / "one").read_bytes() == b"x"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("data/train.txt", "z")
    extract(tmp_path / "a.zip", {tmp_path / "two": "data/train.txt"})
    assert (tmp_path / "two").read_bytes() == b"z"


def test_paths_in_an_archive_lead_nowhere(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    tar(tmp_path / "a.tgz", **{".._evil": b"x", "_abs": b"x", "train.txt": b"y"})
    extract(tmp_path / "a.tgz", {inside / "train": "train.txt"})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tgz", "inside", "train"]


def test_links_in_an_archive_are_refused(tmp_path):
    (tmp_path / "secret").write_text("secret")
    tar(tmp_path / "a.tgz", **{"train.txt": str(tmp_path / "secret")})
    with pytest.raises(DataError, match=r"a\.tgz: holds no file 'train\.txt'"):
        extract(tmp_path / "a.tgz", {tmp_path / "train": "train.txt"})
    assert not (tmp_path / "train").exists()


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_damaged_archives(tmp_path, cut):
    tar(tmp_path / "a.tgz", **{"train.txt": bytes(range(256)) * 40})
    (tmp_path / "b.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:cut])
    with pytest.raises(DataError, match=r"b\.tgz: no archive, or a damaged one"):
        extract(tmp_path / "b.tgz", {tmp_path / "train": "train.txt"})
