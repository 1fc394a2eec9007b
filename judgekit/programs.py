"""Programs that judgekit starts: where they are found, what they may know, how they are bounded.

And Python without anything of the current folder. Standard library only: the prompt hook imports this.
"""

from __future__ import annotations

import os
import sys
import time

from judgekit import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NEEDED = "pydantic"  # stands for all that judgekit depends on
# What Python's own variables name may lie in the current folder: `-I` ignores all but what `site` reads.
_USER_BASE = "PYTHONUSERBASE"
# For a shell that starts a Python which is not isolated: none of its variables leads into the current folder.
OWN_PYTHON = (
    f"unset PYTHONPATH PYTHONHOME {_USER_BASE} PYTHONWARNINGS PYTHONPYCACHEPREFIX PYTHONPLATLIBDIR "
    "PYTHONINSPECT PYTHONEXECUTABLE __PYVENV_LAUNCHER__"
)
MOST = 64_000_000  # bytes that a program may print
_START = (
    "import sys; sys.path.insert(0, {root!a}); from judgekit import programs; del sys.path[0]; "
    "programs.run_module({module!a})"
)


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program in the absolute folders of `PATH`: others may be those of a repository."""
    files = [name]
    if not os.path.dirname(name):
        if os.name == "nt":
            endings = environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";")
        else:
            endings = [""]
        folders = search_path(environ).split(os.pathsep)
        files = []
        for folder in folders:
            for ending in endings:
                files.append(os.path.join(folder, name + ending))
    for file in files:
        if os.path.isabs(file) and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return None


def search_path(environ: Mapping[str, str]) -> str:
    """Return `PATH` without its empty and relative entries, for the programs that a program starts."""
    entries = environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))


def known(program: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Build a program's environment: the variables it may know and those set for it (`programs.toml`)."""
    table = environment.table(__file__, "programs.toml")
    own = table[program]
    names = {*table["kept"], *table[program]["kept"]}
    begin = tuple(own.get("begin", ()))
    given = dict[str, str](own.get("set", {}))
    return {
        name: value for name, value in environ.items() if name in names or name.startswith(begin)
    } | given


class Unfinished(Exception):  # noqa: N818 - what became of the program
    """A program was ended: it took too long, or printed too much; the text says which."""


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdin: str = "",
    *,
    seconds: float,
    folder: str = "~",
    most: int = MOST,
) -> tuple[int, bytes, str]:
    """Return a program's exit code and what it printed; no shell reads `argv`, and it runs in `folder`.

    It is done when all that it started is, and ends with it. Raises `OSError` or `ValueError` if it can't
    be started, and `Unfinished`.
    """
    given: bytes | None = stdin.encode("utf-8", "replace")
    import contextlib  # noqa: PLC0415 - the hook starts no program, and subprocess costs as much as it
    import signal  # noqa: PLC0415 - the same
    import subprocess  # noqa: PLC0415 - the same

    until = time.monotonic() + seconds
    printed = None
    with subprocess.Popen(  # noqa: S603 - a program that the user chose, or knows
        argv,
        cwd=os.path.expanduser(folder),
        env={**environ, "PATH": search_path(environ)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            while printed is None:
                try:
                    printed = sizes = process.communicate(
                        given, min(0.05, max(0, until - time.monotonic()))
                    )
                except subprocess.TimeoutExpired as late:
                    given = None
                    sizes = (late.output or b"", late.stderr or b"")
                if max(map(len, sizes)) > most:
                    raise Unfinished(f"printed more than {most:,} bytes")
                if printed is None and time.monotonic() >= until:
                    raise Unfinished(f"no response within {seconds:.3g} s")
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                process.kill() if sys.platform == "win32" else os.killpg(
                    process.pid, signal.SIGKILL
                )
    return process.returncode, printed[0], printed[1].decode("utf-8", "replace")


def python(module: str, *words: str) -> list[str]:
    """Return the command that runs a module isolated (`-I`), with the packages that this process found."""
    return [sys.executable, "-I", "-c", _START.format(root=ROOT, module=module), *words]


def run_module(module: str) -> None:
    """Run a module of an installed package, or of this one, as the main program of this process."""
    import runpy  # noqa: PLC0415 - the hook never needs it

    make_importable()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def make_importable() -> None:
    """Add the folders of installed packages to the path of an isolated interpreter, if it lacks them.

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
    if find_spec(_NEEDED) is None and os.path.isabs(
        environment.environ().get(_USER_BASE) or os.sep
    ):
        site.addsitedir(site.getusersitepackages())
