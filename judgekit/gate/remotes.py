"""The remote of a push, and this clone's knowledge of it: the refs it was fetched into."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from judgekit.git import GitError, normalize_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.gate.commits import Updates
    from judgekit.git import Repository

_BRANCHES = "refs/heads/"
_TAGS = "refs/tags/"
_REMOTES = "refs/remotes/"


class Refspec(NamedTuple):
    """The refs to fetch, and this clone's refs that they go into; a negative one excludes refs."""

    source: str
    destination: str
    is_negative: bool

    @classmethod
    def parse(cls, text: str) -> Refspec:
        if text.startswith("^"):
            return cls(_full_name(text[1:]), "", is_negative=True)
        source, _, destination = text.removeprefix("+").partition(":")
        return cls(_full_name(source), _full_name(destination), is_negative=False)

    def source_of(self, ref: str) -> str | None:
        """Find the remote's ref that is fetched into a ref of this clone; None if there's none."""
        middle = _match_star(self.destination, ref)
        if self.is_negative or not self.destination or middle is None:
            return None
        return self.source.replace("*", middle, 1)

    @property
    def folder(self) -> str:
        """The folder of all refs this fetches into, or the single ref."""
        before_star, star, _ = self.destination.partition("*")
        return before_star.rpartition("/")[0] if star else before_star


class TrackedRef(NamedTuple):
    """This clone's record of a remote's ref `source`; a symbolic one has a `target`."""

    name: str
    source: str
    oid: str
    target: str


class Remotes(NamedTuple):
    """The `names` of the remote of a push, and the known refs of all remotes, by name."""

    names: list[str]
    refs: dict[str, list[TrackedRef]]

    @property
    def pushed_refs(self) -> list[TrackedRef]:
        """The refs of the remote that's pushed to."""
        refs = []
        for name in self.names:
            refs += self.refs.get(name, [])
        return refs

    @property
    def other_refs(self) -> list[TrackedRef]:
        others = []
        for name, refs in self.refs.items():
            if name not in self.names:
                others += refs
        return others

    def default_branch(self, name: str, remote_oids: Mapping[str, str]) -> str | None:
        """Find the commit of a remote's default branch; None if it's unknown.

        `remote_oids` maps the remote's refs to their state during the push, which is newer than the last
        fetch.
        """
        refs = self.refs.get(name, [])
        by_name = {ref.name: ref for ref in refs}
        by_source = {ref.source: ref for ref in refs}
        head = by_name.get(f"{_REMOTES}{name}/HEAD") or by_source.get("HEAD")
        candidates = []
        if head is not None:
            if not head.target:
                return head.oid
            candidates.append(by_name.get(head.target))
        candidates.append(by_source.get(f"{_BRANCHES}main"))
        candidates.append(by_source.get(f"{_BRANCHES}master"))
        for ref in candidates:
            if ref is not None:
                return remote_oids.get(ref.source) or ref.oid
        return None


def read_remotes(repository: Repository, remote: str, url: str = "") -> Remotes:
    """Read this clone's knowledge of the push's remote, a name or a URL, and of all others.

    A ref in refs/remotes/ that belongs to no remote, or to several, is listed under the name "".
    """
    addresses = _read_addresses(repository)
    names = _find_names(repository, addresses, remote, url)
    refspecs = _read_refspecs(repository)
    folders = {_REMOTES.rstrip("/")}
    for specs in refspecs.values():
        folders.update(spec.folder for spec in specs if spec.folder)
    listed_refs = _list_refs(repository, sorted(folders))
    claimed_refs: dict[str, list[TrackedRef]] = {}
    claimants: dict[str, set[str]] = {}  # by ref, the names of the remotes fetched into it
    for name in dict.fromkeys([*names, *addresses, *refspecs]):
        claimed_refs[name] = _select_refs(name, refspecs.get(name, []), listed_refs)
        for ref in claimed_refs[name]:
            claimants.setdefault(ref.name, set()).add(name)
    refs: dict[str, list[TrackedRef]] = {}
    owned: set[str] = set()
    for name, tracked_refs in claimed_refs.items():
        # Two remotes may share a ref only if both are the push's.
        same_remote = set(names) if name in names else {name}
        refs[name] = [ref for ref in tracked_refs if claimants[ref.name] <= same_remote]
        owned.update(ref.name for ref in refs[name])
    unowned = []
    for ref in listed_refs:
        if ref.name.startswith(_REMOTES) and ref.name not in owned:
            unowned.append(ref)
    refs.setdefault("", []).extend(unowned)
    return Remotes(names, refs)


def list_remote_commits(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> list[str]:
    """List the commits that a remote, a name or a URL, has at its refs.

    For a remote that was never fetched, lists the commits at all others' refs.
    """
    remotes = read_remotes(repository, remote, url)
    refs = remotes.pushed_refs or remotes.other_refs
    old_tips = [update.remote_oid for update in updates if not update.is_new]
    return list(dict.fromkeys([*old_tips, *(ref.oid for ref in refs)]))


def list_upstream_commits(repository: Repository, upstreams: Sequence[str]) -> list[str]:
    """List the commits at the refs of remotes with an address in `upstreams`.

    Someone who syncs a fork pushes commits that upstream already has, written by others.
    """
    if not upstreams:
        return []
    folder = os.path.realpath(repository.folder)
    places = {normalize_address(address, folder) for address in upstreams}
    refs = read_remotes(repository, "").refs
    oids: list[str] = []
    for name, addresses in _read_addresses(repository).items():
        if any(normalize_address(address, folder) in places for address in addresses):
            oids += [ref.oid for ref in refs.get(name, [])]
    return list(dict.fromkeys(oids))


def _full_name(ref: str) -> str:
    """Write a ref in full, as git stores it; a short name means a branch."""
    if not ref or ref == "HEAD" or ref.startswith("refs/"):
        return ref
    return "HEAD" if ref == "@" else f"{_BRANCHES}{ref}"


def _match_star(pattern: str, ref: str) -> str | None:
    """Return the text that a pattern's star matches, "" if it has no star; None without a match."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if ref == pattern else None
    if len(ref) < len(before) + len(after) or not (ref.startswith(before) and ref.endswith(after)):
        return None
    return ref[len(before) : len(ref) - len(after)]


def _read_addresses(repository: Repository) -> dict[str, list[str]]:
    """Read each remote's addresses, with git's `insteadOf` applied."""
    addresses: dict[str, list[str]] = {}
    output = os.fsdecode(repository.ask("remote", "-v"))
    for line in output.split("\n")[:-1]:
        name, _, address = line.partition("\t")
        addresses.setdefault(name, []).append(address.rpartition(" (")[0])
    return addresses


def _find_names(
    repository: Repository, addresses: Mapping[str, Sequence[str]], remote: str, url: str
) -> list[str]:
    """Name the remotes at the address of the push, the given one first."""
    folder = os.path.realpath(repository.folder)
    # A named remote has addresses; otherwise `remote` is an address itself.
    pushed_addresses = {url, *addresses.get(remote, [remote])}
    places = {normalize_address(address, folder) for address in pushed_addresses if address}
    names = [remote]
    for name, own_addresses in addresses.items():
        if any(normalize_address(address, folder) in places for address in own_addresses):
            names.append(name)
    return list(dict.fromkeys(names))


def _read_refspecs(repository: Repository) -> dict[str, list[Refspec]]:
    """Read the refspecs with which each remote is fetched."""
    try:
        raw = repository.ask("config", "-z", "--get-regexp", r"^remote\..*\.fetch$")
    except GitError:  # none is configured
        return {}
    refspecs: dict[str, list[Refspec]] = {}
    for entry in os.fsdecode(raw).split("\0")[:-1]:
        key, _, value = entry.partition("\n")
        name = key.removeprefix("remote.").removesuffix(".fetch")
        refspecs.setdefault(name, []).append(Refspec.parse(value))
    return refspecs


def _list_refs(repository: Repository, folders: Iterable[str]) -> list[TrackedRef]:
    """List the refs in some folders that local commits don't move: no branches and no tags."""
    words = ("for-each-ref", "--format=%(refname) %(objectname) %(symref)")
    refs: list[TrackedRef] = []
    output = os.fsdecode(repository.ask(*words, *folders))
    for line in output.split("\n")[:-1]:
        name, oid, target = line.split(" ")
        # A mirror fetches into its branches, which may hold commits nobody has pushed yet.
        if not name.startswith((_BRANCHES, _TAGS)):
            refs.append(TrackedRef(name=name, source="", oid=oid, target=target))
    return refs


def _select_refs(
    name: str, refspecs: Sequence[Refspec], listed: Sequence[TrackedRef]
) -> list[TrackedRef]:
    """List the refs a remote is fetched into; if it has none, those in a folder with its name."""
    folder = f"{_REMOTES}{name}/"
    tracked: list[TrackedRef] = []
    for ref in listed:
        if ref.name == f"{folder}HEAD" and ref.target:  # written by `git remote set-head`
            source: str | None = "HEAD"
        else:
            sources = (spec.source_of(ref.name) for spec in refspecs)
            source = next(filter(None, sources), None)
        if source is not None and not _is_excluded(source, refspecs):
            tracked.append(ref._replace(source=source))
    if any(ref.source != "HEAD" for ref in tracked):
        return tracked
    in_folder = []
    for ref in listed:
        if ref.name.startswith(folder):
            in_folder.append(ref._replace(source=_BRANCHES + ref.name.removeprefix(folder)))
    return in_folder


def _is_excluded(source: str, refspecs: Sequence[Refspec]) -> bool:
    """Whether a negative refspec excludes a ref of the remote."""
    return any(
        spec.is_negative and _match_star(spec.source, source) is not None for spec in refspecs
    )
