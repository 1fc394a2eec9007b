"""The refs that a push updates, as git tells them, and which remotes are the place it goes to."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.git import Repository

_FIELDS = 4  # of a line on a pre-push hook's stdin
_ADDRESSES = r"^(remote\..*\.(push)?url|url\..*\.(push)?insteadof)$"
_URL = re.compile(r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL)
_SCP = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


class RefUpdate(NamedTuple):
    """One ref of a push; an object id of zeros stands for nothing: a new ref, or a deleted one."""

    local_ref: str
    local_oid: str
    remote_ref: str
    remote_oid: str

    @property
    def deletes(self) -> bool:
        return not self.local_oid.strip("0")

    @property
    def is_new(self) -> bool:
        """Whether the remote has no such ref yet."""
        return not self.remote_oid.strip("0")


def parse(text: str) -> list[RefUpdate]:
    """Return the updates that git tells a pre-push hook, a line each; raises `InputError` for another line.

    What is pushed may be named by an expression with spaces in it (`main@{1 day ago}`), so lines are read
    from their end.
    """
    updates = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        fields = line.rsplit(" ", _FIELDS - 1)
        oids = fields[1::2] if len(fields) == _FIELDS else [""]
        if not all(len(oid) in (40, 64) and not oid.strip("0123456789abcdef") for oid in oids):
            raise InputError(f"stdin:{number}: expected <local ref> <local oid> <remote ref> <remote oid>")
        updates.append(RefUpdate(*fields))
    return updates


def names_of(repository: Repository, remote: str, url: str) -> list[str]:
    """Return the names of the remotes at the place that is pushed to; `remote` is one of them, or a URL."""
    addresses, instead = configured(repository)
    folder = os.path.realpath(repository.folder)
    mine = {url, remote if remote not in addresses else "", *addresses.get(remote, ())} - {""}
    places = {_place(address, instead, folder) for address in mine}
    same = [
        name
        for name, theirs in addresses.items()
        if any(_place(address, instead, folder) in places for address in theirs)
    ]
    return list(dict.fromkeys([remote, *same]))


def configured(repository: Repository) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Return the addresses of each remote, and what git puts in the place of which beginning of one."""
    if not repository.holds("config", "--get-regexp", _ADDRESSES):
        return {}, []
    listed = os.fsdecode(repository.ask("config", "-z", "--get-regexp", _ADDRESSES)).split("\0")
    addresses: dict[str, list[str]] = {}
    instead: list[tuple[str, str]] = []
    for entry in filter(None, listed):
        key, _, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        name = rest.rpartition(".")[0]
        if section == "remote":
            addresses.setdefault(name, []).append(value)
        else:
            instead.append((value, name))
    return addresses, sorted(instead, key=lambda each: -len(each[0]))


def _place(address: str, instead: Iterable[tuple[str, str]], folder: str) -> str:
    """Return what is the same for all addresses of a place: its host and path, or its folder here."""
    for beginning, other in instead:
        if beginning and address.startswith(beginning):
            address = other + address.removeprefix(beginning)
            break
    found = _URL.fullmatch(address) or _SCP.fullmatch(address)
    if found is not None and found["host"]:
        return f"{found['host'].lower()}/{found['path'].rstrip('/').removesuffix('.git')}"
    path = f"/{found['path']}" if found is not None else address
    return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - no file is meant
