"""The package as installed: a wheel built from the sdist, with its runtime dependencies and no others."""

from __future__ import annotations

import email
import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import pytest
import sample_store
from packaging.requirements import Requirement

from judgekit.config import files

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DATA = files.FOLDERS
SECONDS = 120


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None, stdin: str = "") -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def listed(*folders: str) -> set[str]:
    """Return the paths that git would release: not ignored, and there."""
    git = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders)
    return {name for name in run(*git, cwd=ROOT).split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project as a maintainer may have it: with files in it that git ignores."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing says which files belong to the project")
    folder = tmp_path_factory.mktemp("source")
    for name in listed("."):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for data in DATA:
        (folder / data / "__pycache__").mkdir(parents=True)
        (folder / data / "__pycache__" / "stale.cpython-311.pyc").write_bytes(b"ignored by git")
    return folder


class Built(NamedTuple):
    sdist: Path
    wheel: Path

    def in_wheel(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.wheel) as archive:
            return {
                name: archive.read(name) for name in archive.namelist() if not name.endswith("/")
            }

    def in_sdist(self) -> set[str]:
        with tarfile.open(self.sdist) as archive:
            return {
                str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()
            }


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel that is built from it; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, cwd=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel)


def test_data_in_the_wheel_is_what_git_has(built: Built) -> None:
    prefix = "judgekit/_bundled/"
    shipped = {
        name.removeprefix(prefix): data
        for name, data in built.in_wheel().items()
        if name.startswith(prefix)
    }
    assert set(shipped) == listed(*DATA)
    assert {name.split("/")[0] for name in shipped} == set(DATA)
    assert [name for name, data in shipped.items() if data != (ROOT / name).read_bytes()] == []


def test_what_else_is_in_the_wheel_and_the_sdist(built: Built) -> None:
    code = {
        name
        for name in built.in_wheel()
        if name.startswith("judgekit/") and "/_bundled/" not in name
    }
    assert code == listed("judgekit")
    assert "judgekit/py.typed" in code
    top = {
        re.sub(r"-.*\.dist-info", "-*.dist-info", name.split("/")[0]) for name in built.in_wheel()
    }
    assert top == {"judgekit", "judgekit-*.dist-info"}
    # A module in a data folder would shadow the package in a checkout.
    shipped = [name for name in built.in_wheel() if "/_bundled/" in name]
    assert [
        name for name in (*listed(*DATA), *shipped) if name.endswith((".py", ".pyc", ".pth"))
    ] == []
    (licence,) = [
        data for name, data in built.in_wheel().items() if name.endswith("/licenses/LICENSE")
    ]
    assert licence == (ROOT / "LICENSE").read_bytes()
    wanted = {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "tests/test_packaging.py",
        *listed("judgekit", *DATA),
    }
    assert wanted - built.in_sdist() == set()
    assert built.in_sdist() - listed(".") == {"PKG-INFO"}  # nothing that git ignores


# From here on: the wheel in an environment of its own.


class Installed(NamedTuple):
    """An environment with judgekit and its runtime dependencies, and a folder to work in."""

    venv: Path
    work: Path

    def judgekit(self, *args: str, stdin: str = "") -> str:
        nowhere = "http://127.0.0.1:9"  # the discard port: whoever tries to leave gets nowhere
        env = {
            "HOME": str(self.work),
            "PATH": f"{self.venv / 'bin'}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        env |= {"NO_COLOR": "1", "COLUMNS": "100", "NO_PROXY": "127.0.0.1,localhost"}
        env |= {"HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere}
        program = "python" if args[0] == "-c" else "judgekit"
        return run(self.venv / "bin" / program, *args, cwd=self.work, env=env, stdin=stdin)


def needed(requirement: Requirement, seen: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """Yield every distribution that a requirement brings, as installed here, with the extras it names."""
    key = str(requirement)
    if key in seen:
        return
    seen.add(key)
    distribution = importlib.metadata.distribution(requirement.name)
    yield distribution
    for line in distribution.requires or []:
        inner = Requirement(line)
        if applies(inner, requirement.extras):
            yield from needed(inner, seen)


def applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})


def runtime_requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return [requirement for requirement in found if applies(requirement, set())]


def link(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    """Make the distribution's files, and no others, importable from `folder`."""
    for file in distribution.files or []:
        if ".." in file.parts or (folder / file).exists():
            continue
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).symlink_to(Path(str(distribution.locate_file(file))).resolve())


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel installed without a network, beside its runtime dependencies and nothing else."""
    if sys.platform == "win32":
        pytest.skip("links the dependencies by symlink, which Windows gives to administrators only")
    base = tmp_path_factory.mktemp("installed")
    seen: set[str] = set()
    for requirement in runtime_requirements(built.wheel):
        for distribution in needed(requirement, seen):
            link(distribution, base / "dependencies")
    here = Installed(base / "venv", base / "work")
    here.work.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", here.venv, cwd=base)
    pip = (sys.executable, "-m", "pip", "--isolated", "--python", str(here.venv / "bin" / "python"))
    quiet = ("--quiet", "--disable-pip-version-check")
    run(*pip, "install", *quiet, "--no-index", "--no-deps", built.wheel, cwd=base)
    (packages,) = here.venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{base / 'dependencies'}\n", encoding="utf-8")
    sample_store.write(here.work)
    return here


def test_every_module_imports_from_there_without_developer_dependencies(
    installed: Installed,
) -> None:
    of_ray = tuple(
        f"judgekit.data.{name}" for name in ("on_ray", "parts", "worker")
    )  # the extra's own
    code = (
        "import importlib, importlib.util as u, pkgutil, judgekit\n"
        "print(judgekit.__file__, *map(u.find_spec, ('pytest', 'mypy')))\n"
        "for each in pkgutil.walk_packages(judgekit.__path__, 'judgekit.'):\n"
        f"    if not each.name.endswith(('__main__', '.pytest_plugin', *{of_ray})):\n"
        "        importlib.import_module(each.name)\n"
        "        print(each.name)\n"
    )
    where, *words = installed.judgekit("-c", code).split()
    assert Path(where).is_relative_to(installed.venv)
    assert words[:2] == ["None", "None"]
    assert "judgekit.cli.app" in words
    for name in of_ray:
        asked = f"try: import {name}\nexcept ImportError as error: print(error.name)"
        assert installed.judgekit("-c", asked).strip() in ("numpy", "pyarrow", "ray")
    code = "from importlib.metadata import entry_points; print(*entry_points(group='pytest11'))"
    assert "value='judgekit.cli.pytest_plugin'" in installed.judgekit("-c", code)


def test_its_commands_work_without_a_provider(installed: Installed) -> None:
    words = installed.judgekit("--help").split()
    assert {"search", "hook", "judge", "rubric", "provider", "schema", "doctor", "demo"} - set(
        words
    ) == set()
    shown = installed.judgekit("rubric", "list")
    rubrics = [path.stem for path in (ROOT / "rubrics").glob("*.yaml")]
    assert rubrics
    assert [
        rubric for rubric in rubrics if not all(part in shown for part in rubric.split("@"))
    ] == []
    assert importlib.metadata.version("judgekit") in installed.judgekit("doctor")
    prompt = json.dumps({"prompt": "How do we refresh the JWT?", "cwd": str(installed.work)})
    context = installed.judgekit("hook", stdin=prompt)
    assert context.startswith("<memory-context")
    assert sample_store.JWT.title in context
    found = json.loads(installed.judgekit("search", "refresh the JWT", "--json"))
    assert found["results"][0]["title"] == sample_store.JWT.title
    assert json.loads(installed.judgekit("schema", "verdict"))["$schema"].endswith("2020-12/schema")


def test_every_locked_package_has_a_hash() -> None:
    for name in ("requirements.lock", "requirements-scale.lock"):
        lock = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        packages = [line for line in lock.split("\n") if line and not line.lstrip().startswith("#")]
        assert len(packages) > 20
        assert [each for each in packages if "==" not in each or "--hash=sha256:" not in each] == []
    assert "--require-hashes" in (ROOT / "Makefile").read_text(encoding="utf-8")
