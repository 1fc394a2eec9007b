"""Programs that judgekit starts: where they are found, and Python without anything of the current folder.

Standard library only: the prompt hook imports this.
"""

from __future__ import annotations

import os
import sys

from judgekit import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NEEDED = "pydantic"  # stands for all that judgekit depends on
# What Python's own variables name may lie in the current folder: `-I` ignores all but what `site` reads.
_USER_BASE = "PYTHONUSERBASE"
# For a shell that starts a Python which is not isolated: none of its variables leads into the current folder.
OWN_PYTHON = (
    f"unset PYTHONPATH PYTHONHOME {_USER_BASE} PYTHONWARNINGS PYTHONPYCACHEPREFIX PYTHONPLATLIBDIR "
    "PYTHONINSPECT PYTHONEXECUTABLE __PYVENV_LAUNCHER__"
)
_START = (
    "import sys; sys.path.insert(0, {root!a}); from judgekit import programs; del sys.path[0]; "
    "programs.run_module({module!a})"
)


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program in the absolute folders of `PATH`: others may be those of a repository."""
    files = [name]
    if not os.path.dirname(name):
        endings = environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if os.name == "nt" else [""]
        folders = search_path(environ).split(os.pathsep)
        files = [os.path.join(folder, name + ending) for folder in folders for ending in endings]
    for file in files:
        if os.path.isabs(file) and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return None


def search_path(environ: Mapping[str, str]) -> str:
    """Return `PATH` without its empty and relative entries, for the programs that a program starts."""
    entries = environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))


def python(module: str, *words: str) -> list[str]:
    """Return the command that runs a module isolated (`-I`), with the packages that this process found."""
    return [sys.executable, "-I", "-c", _START.format(root=ROOT, module=module), *words]


def run_module(module: str) -> None:
    """Run a module of an installed package, or of this one, as the main program of this process."""
    import runpy  # noqa: PLC0415 - the hook never needs it

    make_importable()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def make_importable() -> None:
    """Add the folders of installed packages to the path of an isolated interpreter, where it lacks them.

    Before them comes the folder that holds this package, where its dependencies lie there too (`pip install
    --target`); after them the user's own packages, which `-I` leaves out, where they are needed.
    """
    if not sys.flags.isolated:
        return
    import site  # noqa: PLC0415 - a fifth of the cost of starting Python; the hook's usual answer needs none
    from importlib.util import find_spec  # noqa: PLC0415 - the same

    packages = (place for place, folder in enumerate(sys.path) if folder.endswith("-packages"))
    standard = next(packages, len(sys.path))
    if sys.flags.no_site and os.path.isabs(sys.executable):  # beside it `site` looks for them
        site.main()
    if ROOT not in sys.path and os.path.isdir(os.path.join(ROOT, _NEEDED)):
        site.addsitedir(ROOT)
        sys.path.remove(ROOT)
        sys.path.insert(standard, ROOT)
    if find_spec(_NEEDED) is None and os.path.isabs(environment.environ().get(_USER_BASE) or os.sep):
        site.addsitedir(site.getusersitepackages())
