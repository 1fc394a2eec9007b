"""Replacing another program's settings file: whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from judgekit.errors import InputError
from judgekit.hooks import files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_bytes(b"old")
    return path


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_content_is_replaced_and_mode_stays(file: Path) -> None:
    for mode in (0o600, 0o640, 0o664, 0o755):
        file.write_bytes(b"old")
        file.chmod(mode)
        os.utime(file, (1, 1))
        assert files.replace(file, b"old", b"new") == []
        assert file.read_bytes() == b"new"
        assert stat.S_IMODE(file.stat().st_mode) == mode
        assert file.stat().st_mtime > 1, "who watches the file by its time must see the change"
    assert only(file.parent) == ["settings.json"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root may give a file away")
def test_the_owner_stays(file: Path) -> None:
    os.chown(file, 12345, 23456)
    files.replace(file, b"old", b"new")
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_a_new_file_has_the_usual_mode_and_its_folders_are_named(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    path = tmp_path / "a" / "b" / "settings.json"
    assert files.read(path) is None
    assert files.replace(path, None, b"new") == [tmp_path / "a", tmp_path / "a" / "b"]
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode == usual.stat().st_mode
    files.replace(path, b"new", None)
    (tmp_path / "a" / "mine").touch()
    files.remove_folders([tmp_path / "a", tmp_path / "a" / "b"])
    assert only(tmp_path / "a") == ["mine"]
    (tmp_path / "a" / "mine").unlink()
    files.remove_folders([tmp_path / "a"])
    assert only(tmp_path) == ["usual"]


def test_links_are_followed(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "home" / "settings.json"
    link.parent.mkdir()
    link.symlink_to("../settings.json")
    files.replace(link, b"old", b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    files.replace(link, b"new", None)
    files.replace(link, None, b"again")  # a link to nothing is followed both ways
    assert link.is_symlink()
    assert file.read_bytes() == b"again"
    files.replace(link, b"again", None)
    assert link.is_symlink()
    assert (only(link.parent), only(tmp_path)) == (["settings.json"], ["home"])


def test_a_strangers_edit_is_not_overwritten(file: Path) -> None:
    changes: list[tuple[bytes | None, bytes | None]] = [(b"older", b"new"), (None, b"new"), (b"older", None)]
    for before, after in changes:
        with pytest.raises(InputError, match="another program just changed it"):
            files.replace(file, before, after)
        assert file.read_bytes() == b"old"
    assert only(file.parent) == ["settings.json"]
    file.unlink()
    with pytest.raises(InputError):
        files.replace(file, b"old", b"new")
    assert only(file.parent) == [], "nor is a removal undone"


@pytest.mark.parametrize(("step", "before"), [("fsync", b"old"), ("link", None)])
def test_an_edit_while_ours_is_written_is_seen(
    file: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bytes | None
) -> None:
    real = getattr(os, step)

    def meddle(*arguments: object) -> None:
        file.write_bytes(b"theirs")
        real(*arguments)

    if before is None:
        file.unlink()
    monkeypatch.setattr(os, step, meddle)
    with pytest.raises(InputError, match="another program just changed it"):
        files.replace(file, before, b"new")
    assert file.read_bytes() == b"theirs"
    assert only(file.parent) == ["settings.json"]


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        files.read(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        files.replace(file / "settings.json", None, b"new")
    link = tmp_path / "link.json"
    link.symlink_to(file)
    file.chmod(0o444)
    with pytest.raises(InputError, match="read-only; make it writable"):
        files.replace(file, b"old", b"new")
    with pytest.raises(InputError, match=f"a link to {file}"):
        files.replace(link, b"old", b"new")
    assert file.read_bytes() == b"old"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_said(file: Path) -> None:
    file.parent.chmod(0o555)
    try:
        for path, before in ((file, b"old"), (file.parent / "new" / "settings.json", None)):
            with pytest.raises(InputError, match=r"Permission denied.*its folder"):
                files.replace(path, before, b"new")
    finally:
        file.parent.chmod(0o755)
    assert file.read_bytes() == b"old"


def test_a_full_disk_changes_nothing_and_hard_links_are_no_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for step in ("fsync", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            patch.setattr(Path, "replace", full)
            with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
                files.replace(tmp_path / "a" / "settings.json", None, b"new")
            assert only(tmp_path) == []
    monkeypatch.setattr(os, "link", refuse)
    files.replace(tmp_path / "settings.json", None, b"new")
    assert only(tmp_path) == ["settings.json"]
