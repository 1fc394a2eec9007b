"""A PostgreSQL of the tests' own: it listens in a folder alone, wants passwords, and can be killed."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "JUDGEKIT_TEST_POSTGRES"  # the folder of its programs
OWNER, RUNTIME, ADMIN = "judgekit_owner", "judgekit", "admin"
PASSWORD = "geheim/2031"  # must be escaped in an address, and never be shown


class Postgres:
    """A server; `passwords` is a file for libpq that knows every role's."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self.folder = programs, folder
        self.passwords, self._databases = folder / "passwords", 0
        # It refuses to run as root.
        names = ("postgres", "nobody") if os.geteuid() == 0 else ()
        self._user = next((name for name in names if _is_user(name)), None)
        if self._user is not None:
            shutil.chown(folder, self._user)
        (folder / "word").write_text(PASSWORD)
        (folder / "word").chmod(0o644)
        self.passwords.write_text(f"*:*:*:*:{PASSWORD}\n")
        self.passwords.chmod(0o600)
        words = f"-A scram-sha-256 -U {ADMIN} --pwfile={folder / 'word'} --no-instructions -E UTF8".split()
        self._run("initdb", "-D", self.data, *words)
        self.start()
        with self.connect(ADMIN) as connection:
            for role in (OWNER, RUNTIME):
                connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def start(self) -> None:
        options = f"-k {self.folder} -h '' -c max_connections=60 -c shared_buffers=32MB"
        self._run(
            "pg_ctl", "-D", self.data, "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        """End it as a crash does, or in another `mode` of pg_ctl."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def create(self) -> str:
        """Return the name of a new database that belongs to the owner."""
        self._databases += 1
        name = f"team{self._databases}"
        with self.connect(ADMIN) as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {OWNER}")
        return name

    def url(self, database: str, role: str = RUNTIME, *, password: str = "") -> str:
        who = f"{role}:{quote(password, safe='')}" if password else role
        return f"postgresql://{who}@/{database}?host={quote(str(self.folder), safe='')}"

    def connect(self, role: str = ADMIN, database: str = "postgres") -> Any:  # noqa: ANN401 - the driver is an extra
        import psycopg  # noqa: PLC0415 - the same

        return psycopg.connect(self.url(database, role, password=PASSWORD), autocommit=True)

    def rows(self, database: str, statement: str, *values: object) -> list[Any]:
        with self.connect(ADMIN, database) as connection:
            done = connection.execute(statement, values)
            return list(done.fetchall()) if done.description else []

    def _run(self, program: str, *words: str) -> None:
        with (self.folder / "said").open("ab") as said:  # a pipe would stay open with the server
            done = subprocess.run(
                [self._programs / program, *words],
                user=self._user,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=60,
                check=False,
            )
        assert done.returncode == 0, (program, words, (self.folder / "said").read_text()[-2000:])


def _is_user(name: str) -> bool:
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


@contextlib.contextmanager
def running() -> Iterator[Postgres]:
    """Start a server, and stop it after the test; skips if there's no server or no driver."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: make .venv/.scale")
    programs = os.environ.get(VARIABLE, "")
    if not programs or not (Path(programs) / "initdb").exists():
        pytest.skip(f"{VARIABLE} names no folder with initdb")
    # A short name, as a socket needs it, and unlike pytest's folders open to the server's user.
    folder = Path(tempfile.gettempdir()) / f"jkpg-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    server = None
    try:
        server = Postgres(Path(programs), folder)
        yield server
    finally:
        if server is not None:
            with contextlib.suppress(AssertionError):  # a test has stopped it
                server.stop()
        shutil.rmtree(folder)
