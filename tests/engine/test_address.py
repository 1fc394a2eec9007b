from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_processes import private_folder

from judgekit import environment
from judgekit.engine import address
from judgekit.engine.address import MAX_PATH, EngineAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

posix = pytest.mark.skipif(os.name == "nt", reason="owners and rights are POSIX")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with private_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder


def found(*, make: bool = True) -> EngineAddress:
    place = address.find(make=make)
    assert place is not None
    return place


def test_the_runtime_folder_is_the_first_choice_and_looking_makes_none(runtime: Path) -> None:
    address.find()
    assert not (runtime / "judgekit").exists()
    assert found().folder == str(runtime / "judgekit")
    assert (runtime / "judgekit").stat().st_mode & 0o777 == 0o700


def test_without_one_it_is_the_cache(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_HOME", str(isolated / "j"))
    if len(str(isolated)) < MAX_PATH - 60:
        assert found().folder == str(isolated / "j/cache/run")


def test_a_long_path_gives_way_to_a_short_one(
    isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_HOME", str(isolated / ("long" * 40)))
    monkeypatch.setattr(environment, "private_folder", lambda path: path)
    monkeypatch.setattr(address, "private", lambda _: True)
    assert len(os.fsencode(found().socket)) <= MAX_PATH


@posix
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_look_into_is_not_used(runtime: Path, mode: int) -> None:
    (runtime / "judgekit").mkdir()
    (runtime / "judgekit").chmod(mode)
    place = address.find()
    assert place is None or not place.folder.startswith(str(runtime))


@posix
def test_a_link_to_a_folder_is_not_used(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (runtime / "judgekit").symlink_to(tmp_path / "elsewhere")
    assert not address.private(str(runtime / "judgekit"))
    assert not found().folder.startswith(str(runtime))


@posix
def test_a_folder_of_somebody_else_is_not_used(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = found().folder
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert not address.private(mine)
    assert address.find() is None


def test_a_full_disk_leaves_no_place(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(environment, "private_folder", full)
    monkeypatch.setattr(address, "private", lambda path: path == str(runtime))
    assert address.find(make=True) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "HOME"])
def test_who_has_another_network_or_home_has_another_engine(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = found()
    assert found().stem == before.stem
    monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert found().compat_key != before.compat_key


def test_another_version_is_another_engine_and_what_travels_changes_nothing(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    monkeypatch.setenv("JUDGEKIT_MODEL", "another")
    assert found().stem == before.stem
    monkeypatch.setattr(address, "_own_code", "")
    monkeypatch.setattr(environment, "__version__", "99.0.0")
    after = found()
    assert (after.compat_key, after.folder) == (before.compat_key, before.folder)
    assert after.code != before.code


def test_an_edit_in_a_checkout_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/a.py").write_text("a = 1\n")
    before = address._stamp(str(tmp_path))
    assert address._stamp(str(tmp_path)) == before
    (tmp_path / "part/a.py").write_text("a = 12\n")
    assert address._stamp(str(tmp_path)) != before


def test_relatives_are_other_versions_with_a_way_in(tmp_path: Path) -> None:
    for name in ("engine-kin-old.sock", "engine-kin-port.port", "engine-kin-own.sock", "engine-kin-log.log"):
        (tmp_path / name).touch()
    (tmp_path / "engine-other-old.sock").touch()
    own = EngineAddress(str(tmp_path), "kin", "own")
    assert [relative.code for relative in address.relatives(own)] == ["old", "port"]
    assert Path(address.relatives(own)[0].socket).exists()
