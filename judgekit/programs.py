"""Starts programs: finds them, limits their time and output, and withholds secrets from them.

Starts Python, too, so that it imports nothing from the current folder. Standard library only: the prompt hook
imports this.
"""

from __future__ import annotations

import os
import sys
import time

from judgekit import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NEEDED_PACKAGE = "pydantic"  # if it's there, so are judgekit's other dependencies
# What Python's own variables name may lie in the current folder: `-I` ignores all but what `site` reads.
_USER_BASE = "PYTHONUSERBASE"
# For a shell that starts a Python which is not isolated: none of its variables leads into the current folder.
UNSET_PYTHON_VARIABLES = (
    f"unset PYTHONPATH PYTHONHOME {_USER_BASE} PYTHONWARNINGS PYTHONPYCACHEPREFIX PYTHONPLATLIBDIR "
    "PYTHONINSPECT PYTHONEXECUTABLE __PYVENV_LAUNCHER__"
)
MAX_OUTPUT_BYTES = 64_000_000  # bytes, for output and error output each
_START_CODE_TEMPLATE = (
    "import sys; sys.path.insert(0, {root!a}); from judgekit import programs; del sys.path[0]; "
    "programs.run_module({module!a})"
)


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """Find a program by name in `PATH`, or by absolute path. Returns None if there's none.

    Relative entries in `PATH` are ignored, because they could lead to programs in a repository.
    """
    is_path = bool(os.path.dirname(name))
    candidates = [name] if is_path else _list_candidates(name, environ)
    for path in candidates:
        if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _list_candidates(name: str, environ: Mapping[str, str]) -> list[str]:
    """List the paths at which a program with this name could be found."""
    extensions = [""]
    if os.name == "nt":  # Windows
        extensions = environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";")
    paths = []
    for folder in search_path(environ).split(os.pathsep):
        for extension in extensions:
            paths.append(os.path.join(folder, name + extension))
    return paths


def search_path(environ: Mapping[str, str]) -> str:
    """Return `PATH` without empty and relative entries, which depend on the current folder."""
    entries = environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry))


def build_environ(program: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Build a program's environment variables by the rules in `programs.toml`.

    Only allowed variables are copied from `environ`. A rule can also set a variable.
    """
    table = environment.read_toml(__file__, "programs.toml")
    rules = table[program]
    allowed_names = {*table["kept"], *rules["kept"]}  # for all programs, and for this one
    allowed_prefixes = tuple(rules.get("begin", ()))
    variables: dict[str, str] = {}
    for name, value in environ.items():
        if name in allowed_names or name.startswith(allowed_prefixes):
            variables[name] = value
    variables.update(rules.get("set", {}))
    return variables


class Unfinished(Exception):  # noqa: N818 - describes the program's state
    """A program was killed because it took too long or printed too much. The message says which."""


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    stdin: str = "",
    *,
    seconds: float,
    folder: str = "~",
    max_bytes: int = MAX_OUTPUT_BYTES,
) -> tuple[int, bytes, str]:
    """Run a program in `folder` without a shell, and return its exit code, output and decoded error output.

    Afterwards, kill all processes that it left running. Raises `OSError` or `ValueError` if it can't be
    started, and `Unfinished` if it takes more than `seconds` or prints more than `max_bytes`.
    """
    import subprocess  # noqa: PLC0415 - imported lazily to keep the hooks fast

    deadline = time.monotonic() + seconds
    with subprocess.Popen(  # noqa: S603 - a known program, or one that the user chose
        argv,
        cwd=os.path.expanduser(folder),
        env={**environ, "PATH": search_path(environ)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            data = stdin.encode("utf-8", "replace")
            output = _read_output(process, data, deadline, max_bytes)
            if output is None:
                raise Unfinished(f"no response within {seconds:.3g} s")
        finally:
            _kill_with_children(process)

    stdout, stderr = output
    return process.returncode, stdout, stderr.decode("utf-8", "replace")


def _read_output(
    process: Popen[bytes], stdin: bytes, deadline: float, max_bytes: int
) -> tuple[bytes, bytes] | None:
    """Send `stdin` to a program, and return its complete output and error output.

    Returns None if the deadline passes first. Raises `Unfinished` if either output exceeds `max_bytes`.
    """
    from subprocess import TimeoutExpired  # noqa: PLC0415 - imported lazily to keep the hooks fast

    data_to_send: bytes | None = stdin
    while True:
        # Wait in short intervals, so that too much output is noticed soon.
        seconds = min(0.05, max(0, deadline - time.monotonic()))
        try:
            stdout, stderr = process.communicate(data_to_send, seconds)
            has_ended = True
        except TimeoutExpired as timeout:
            stdout = timeout.output or b""  # so far
            stderr = timeout.stderr or b""
            has_ended = False
            data_to_send = None  # later calls continue to send the data of the first one

        if len(stdout) > max_bytes or len(stderr) > max_bytes:
            raise Unfinished(f"printed more than {max_bytes:,} bytes")
        if has_ended:
            return stdout, stderr
        if time.monotonic() >= deadline:
            return None


def _kill_with_children(process: Popen[bytes]) -> None:
    """Kill a process and its process group. On Windows, kill it alone."""
    import contextlib  # noqa: PLC0415 - imported lazily to keep the hooks fast
    import signal  # noqa: PLC0415 - imported lazily to keep the hooks fast

    # If all processes have ended, this raises `ProcessLookupError`, or `PermissionError` on macOS.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            # Because of `start_new_session`, the process's id is also its group's id.
            os.killpg(process.pid, signal.SIGKILL)


def build_python_command(module: str, *words: str) -> list[str]:
    """Build the command to run a module in isolated Python (`-I`) with this process's packages."""
    return [
        sys.executable,
        "-I",
        "-c",
        _START_CODE_TEMPLATE.format(root=ROOT, module=module),
        *words,
    ]


def run_module(module: str) -> None:
    """Run a module as this process's main program. It can import all installed packages."""
    import runpy  # noqa: PLC0415 - imported lazily to keep the hooks fast

    make_packages_importable()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def make_packages_importable() -> None:
    """Make installed packages importable in an isolated interpreter (`python -I`)."""
    if not sys.flags.isolated:
        return
    import site  # noqa: PLC0415 - imported lazily to keep the hooks fast

    # Find the position now, so that judgekit's folder comes before all packages that are added below.
    packages_index = _find_packages_index()
    # With `-S`, Python hasn't added the installed packages yet. `site` finds them from the executable's path.
    # If that path is relative, they could be in a repository.
    if sys.flags.no_site and os.path.isabs(sys.executable):
        site.main()
    _add_own_folder(packages_index)
    _add_user_packages()


def _find_packages_index() -> int:
    """Return the position of the first packages folder in the search path, or the path's length."""
    for index, folder in enumerate(sys.path):
        if folder.endswith("-packages"):  # site-packages or dist-packages
            return index
    return len(sys.path)


def _add_own_folder(packages_index: int) -> None:
    """Add judgekit's folder to the search path, if it also contains judgekit's dependencies.

    For example, `pip install --target` puts them all into one folder.
    """
    import site  # noqa: PLC0415 - imported lazily to keep the hooks fast

    has_dependencies = os.path.isdir(os.path.join(ROOT, _NEEDED_PACKAGE))
    if ROOT in sys.path or not has_dependencies:
        return
    # `addsitedir` also reads .pth files, but puts the folder last. So move it before the other packages.
    site.addsitedir(ROOT)
    sys.path.remove(ROOT)
    sys.path.insert(packages_index, ROOT)


def _add_user_packages() -> None:
    """Add the user's packages to the search path, if dependencies are still missing."""
    import site  # noqa: PLC0415 - imported lazily to keep the hooks fast
    from importlib.util import find_spec  # noqa: PLC0415 - imported lazily to keep the hooks fast

    has_dependencies = find_spec(_NEEDED_PACKAGE) is not None  # one of them stands for all
    if has_dependencies:
        return
    # Don't use a relative user base, because it could lead into a repository.
    user_base = environment.environ().get(_USER_BASE)
    if user_base and not os.path.isabs(user_base):
        return
    site.addsitedir(site.getusersitepackages())
