"""Names and private files in the cache folder."""

from __future__ import annotations

import os

from judgekit import environment

_PRIME = 2**64 - 59  # the largest below 2**64
_KEPT = 40  # characters of the path that stay readable in a name


def place(*names: str) -> str:
    """Return the path of something in the cache, there or not."""
    return os.path.join(environment.cache_home(), *names)


def folder(*names: str) -> str:
    """Return a folder of the cache that only its owner can read, made if need be; raises `OSError`."""
    path = environment.private_folder(environment.cache_home())
    for name in names:
        path = environment.private_folder(os.path.join(path, name))
    return path


def name_for(path: str) -> str:
    """Return a file name that stands for `path`: its end, to be recognised, and a checksum of it all."""
    raw = os.path.normcase(path).encode("utf-8", "surrogateescape")
    readable = "".join(char if char.isascii() and char.isalnum() else "-" for char in path[-_KEPT:])
    return f"{readable.strip('-')}-{checksum(raw)}"


def checksum(raw: bytes) -> str:
    """Return 16 hexadecimal digits that differ for different bytes, unless somebody means them not to.

    The remainder of a division by a prime: a checksum of the standard library would have to be imported.
    """
    return f"{int.from_bytes(b'1' + raw, 'big') % _PRIME:016x}"


def write(path: str, text: str) -> None:
    """Write a file that only its owner can read, at once: a reader sees the old or the new one."""
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
