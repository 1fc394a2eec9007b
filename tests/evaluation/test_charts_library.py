"""matplotlib as we use it: late, quiet, the same everywhere, and gone without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from drawn import without_matplotlib

from judgekit.errors import UsageError
from judgekit.evaluation import charts, diagrams
from judgekit.evaluation.stats import BootstrapInterval

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DRAWS = """
import json, os, sys

from judgekit.evaluation import charts, diagrams
from judgekit.evaluation.stats import BootstrapInterval

before = dict(os.environ)
early = "matplotlib" in sys.modules
figures = [diagrams.FigurePanel("Accuracy", [BootstrapInterval(0.5, 0.2, 0.9), None])]
paint = diagrams.intervals_chart(["one", "\\u4e8c"], figures)
text = charts.document(paint, "A chart")
print(json.dumps([text, early, "matplotlib.pyplot" in sys.modules, dict(os.environ) == before]))
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    charts.load.cache_clear()
    yield
    charts.load.cache_clear()


def drawn(folder: Path, **variables: str) -> str:
    """Draw in a process of its own, in which every warning is an error, and return the SVG."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _DRAWS],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    text, early, pyplot, same = json.loads(done.stdout)
    assert (early, pyplot, same) == (False, False, True)
    return str(text)


def test_it_leaves_nothing_behind_and_says_nothing(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    drawn(work, HOME=str(home))
    assert sorted(tmp_path.rglob("*")) == [home, work]


def test_the_same_data_give_the_same_bytes_wherever_they_are_drawn(tmp_path: Path) -> None:
    """Without a home, with another hash seed, with fonts, and with settings that a folder brings."""
    (tmp_path / "matplotlibrc").write_text("font.size: 40\ntext.color: red\nsvg.fonttype: path\nnonsense\n")
    other = tmp_path / "other"
    other.mkdir()
    first = drawn(other, HOME=str(other), PYTHONHASHSEED="1")
    assert first == drawn(tmp_path, HOME=str(tmp_path / "matplotlibrc" / "no-folder"), PYTHONHASHSEED="2")


def test_a_folder_that_the_user_chose_is_used(tmp_path: Path) -> None:
    drawn(tmp_path, HOME="/nonexistent", MPLCONFIGDIR=str(tmp_path / "chosen"))
    assert [path.name[:8] for path in (tmp_path / "chosen").iterdir()] == ["fontlist"]


def test_settings_are_as_before_afterwards() -> None:
    charts.load()
    import matplotlib as mpl  # noqa: PLC0415 - as the product does: late, and under its conditions

    before = dict(mpl.rcParams.copy())
    paint = diagrams.intervals_chart(
        ["one"], [diagrams.FigurePanel("Accuracy", [BootstrapInterval(0.5, 0.2, 0.9)])]
    )
    assert paint is not None
    charts.document(paint, "A chart")
    assert dict(mpl.rcParams.copy()) == before


def test_without_it_one_line_says_what_to_install() -> None:
    with (
        without_matplotlib(),
        pytest.raises(UsageError, match=r"need matplotlib .*pip install.*\[report\]") as caught,
    ):
        charts.load()
    assert "\n" not in str(caught.value)


def test_a_settings_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_bytes(b"font.size: \xff\xfe")
    code = (
        "from judgekit.evaluation import charts\n"
        "try:\n    charts.load()\nexcept charts.UsageError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("pictures need matplotlib ('utf-8' codec")
    assert done.stderr == ""


@pytest.mark.usefixtures("fresh")
def test_without_a_temporary_folder_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(UsageError, match="No usable temporary directory"):
        charts.load()
