"""Loading a large package: whole or not at all, whatever other threads do to the warning filters."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from asking import ask, custom, failure, request
from loopback import Loopback, says

from judgekit.errors import FailureKind
from judgekit.providers import litellm
from judgekit.providers.importing import import_whole
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.per_process import PerProcess

SUPPORT = Path(__file__).parents[1] / "support"
# Filters that make errors of warnings are put back all the time, as a test runner does after each test.
RESTORED_MEANWHILE = """
import sys, threading, time, warnings
sys.path.insert(0, {support!r})
from asking import ask, custom, request
from loopback import Loopback, says
from judgekit.providers.litellm import LitellmGateway

is_over = threading.Event()

def restore_filters():
    while not is_over.is_set():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
        warnings.simplefilter("error")
        time.sleep(0.0002)

others = threading.Thread(target=restore_filters)
others.start()
try:
    with Loopback(says("fine")) as server:
        print(ask(LitellmGateway(), custom(server.base), request(timeout=60)).text)
finally:
    is_over.set()
    others.join()
assert warnings.filters[0][0] == "error"
"""


def run_python(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, *options, "-c", script]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-W", "error")])
def test_filters_of_another_thread_do_not_end_the_import(options: tuple[str, ...]) -> None:
    done = run_python(RESTORED_MEANWHILE.format(support=str(SUPPORT)), *options)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package that warns as it is imported, and imports its parts in a circle."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "large_package"
    (folder / "parts").mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "import warnings\nfrom large_package import parts\nfrom large_package.parts import one\n"
        "warnings.warn('odd')\nfrom large_package import last\n"
    )
    (folder / "parts/__init__.py").write_text("import large_package\n")
    (folder / "parts/one.py").write_text("ONE = 1\n")
    (folder / "last.py").write_text("LAST = 2\n")
    return folder


def import_package() -> object:
    import large_package  # type: ignore[import-not-found]  # noqa: PLC0415 - written by the fixture

    return large_package.last.LAST


def remains() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "large_package"]


def test_a_failed_import_leaves_nothing_and_the_next_one_is_afresh(package: Path) -> None:
    (package / "last.py").write_text("raise OSError('the disk is gone')\n")
    with pytest.raises(OSError, match="the disk is gone"):
        import_whole("large_package", import_package)
    assert not remains()
    (package / "last.py").write_text("LAST = 'found again'\n")
    assert import_whole("large_package", import_package) == "found again"
    for name in remains():
        del sys.modules[name]


def test_a_failure_that_passes_is_tried_again_at_once(package: Path) -> None:
    flag = package / "failed-once"
    (package / "last.py").write_text(
        f"import pathlib\nflag = pathlib.Path({str(flag)!r})\n"
        "if not flag.exists():\n    flag.touch()\n    raise OSError('not yet')\nLAST = 3\n"
    )
    assert import_whole("large_package", import_package) == 3
    for name in remains():
        del sys.modules[name]


def test_warnings_of_other_code_are_as_before(package: Path) -> None:
    assert package.is_dir()
    before = warnings.warn, warnings.warn_explicit, list(warnings.filters)
    assert import_whole("large_package", import_package) == 2
    assert (warnings.warn, warnings.warn_explicit, list(warnings.filters)) == before
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", stacklevel=1)
    for name in remains():
        del sys.modules[name]


def test_what_cannot_be_loaded_is_a_failure_of_its_own_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cannot_load() -> None:
        raise ImportError("no module named 'openai'")

    with Loopback(says("fine")) as server:
        with monkeypatch.context() as patch:
            patch.setattr(litellm, "_imported", [])
            patch.setattr(litellm, "_load_state", PerProcess(litellm._LoadState))
            patch.setattr(litellm, "_import_litellm", cannot_load)
            error = failure(LitellmGateway(), custom(server.base), request())
        assert error.kind is FailureKind.NOT_LOADED
        assert error.message.startswith(
            "litellm cannot be loaded (ImportError: no module named 'openai')"
        )
        assert not server.requests
        assert ask(LitellmGateway(), custom(server.base), request()).text == "fine"
