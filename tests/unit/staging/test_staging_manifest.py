"""Manifests list all that is there, name its version, and survive their bytes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.sources.manifest import Kind, Manifest, shown_path
from sbtrain_staging.sources.scan import first_change, scan
from staging_trees import write_file, write_odd_tree


def test_a_scan_lists_every_name(tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    manifest = scan(tree)
    base = os.fsencode(tree)
    expected = {b""}
    for folder, folders, files in os.walk(base):
        expected |= {(folder + b"/" + n)[len(base) + 1 :] for n in (*folders, *files)}
    assert set(manifest.paths) == expected
    assert manifest.paths == sorted(manifest.paths)
    by_path = {entry.path: entry for entry in manifest}
    assert by_path[b"latest"].kind == Kind.LINK
    assert by_path[b"latest"].target == b"train/a.tfrecord"
    assert by_path[b"locked"].mode == 0o550
    assert by_path[b"all-hole"].extents == ()
    assert manifest.data_bytes < manifest.size_bytes


def test_manifests_survive_their_bytes(tmp_path: Path) -> None:
    manifest = scan(write_odd_tree(tmp_path / "tree"))
    again = Manifest.from_bytes(manifest.to_bytes())
    assert list(again) == list(manifest)
    assert again.fingerprint == manifest.fingerprint
    assert (again.root, again.name) == (manifest.root, manifest.name)


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_cut_manifests_are_refused(tmp_path: Path, cut: int) -> None:
    packed = scan(write_odd_tree(tmp_path / "tree")).to_bytes()
    with pytest.raises(StagingError):
        Manifest.from_bytes(packed[:cut])


def test_any_change_gives_another_fingerprint(tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    seen = {scan(tree).fingerprint}
    (tree / "new").touch()
    seen.add(scan(tree).fingerprint)
    (tree / "new").rename(tree / "renamed")
    seen.add(scan(tree).fingerprint)
    (tree / "train" / "a.tfrecord").chmod(0o600)
    seen.add(scan(tree).fingerprint)
    os.utime(tree / "train" / "b.tfrecord")
    seen.add(scan(tree).fingerprint)
    (tree / "latest").unlink()
    (tree / "latest").symlink_to("elsewhere")
    seen.add(scan(tree).fingerprint)
    assert len(seen) == 6
    assert scan(tree).fingerprint in seen


def test_the_first_change_is_named(tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    manifest = scan(tree)
    assert first_change(manifest, range(len(manifest))) is None
    with (tree / "train" / "a.tfrecord").open("ab") as stream:
        stream.write(b"more")
    changed = first_change(manifest, range(len(manifest)))
    assert changed is not None
    assert manifest.paths[changed] == b"train/a.tfrecord"


def test_a_linked_source_is_followed_and_keeps_its_name(tmp_path: Path) -> None:
    write_file(tmp_path / "v2.h5", 10)
    (tmp_path / "current.h5").symlink_to("v2.h5")
    manifest = scan(tmp_path / "current.h5")
    assert manifest.name == "current.h5"
    assert manifest.root == str(tmp_path / "v2.h5")


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="pipe"):
        scan(tmp_path)
    with pytest.raises(SourceError, match="pipe"):
        scan(tmp_path / "pipe")
    (tmp_path / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(SourceError, match="socket"):
            scan(tmp_path)


@pytest.mark.parametrize("where", ["absent", "file/below", "/"])
def test_sources_that_are_not_there(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError):
        scan(tmp_path / where)


def test_odd_names_are_shown_on_one_line() -> None:
    assert shown_path(b"/d/plain") == "/d/plain"
    assert shown_path("/d/ünï".encode()) == "/d/ünï"
    assert "\n" not in shown_path(b"/d/a\nb\xff")
