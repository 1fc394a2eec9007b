"""The remote of a push, and this clone's knowledge of it: the refs it was fetched into."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from judgekit.git import GitError, normalise_address

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
        """Parse a refspec in git's configuration: `+SOURCE:DESTINATION`, or `^SOURCE` to exclude refs."""
        if text.startswith("^"):
            source = text.removeprefix("^")
            return cls(_complete_name(source), destination="", is_negative=True)
        # A `+` only permits updates that drop commits.
        source, _, destination = text.removeprefix("+").partition(":")
        return cls(_complete_name(source), _complete_name(destination), is_negative=False)

    def source_of(self, ref: str) -> str | None:
        """Return the remote ref that this refspec fetches into `ref`; None if it doesn't."""
        if self.is_negative or not self.destination:
            return None
        star_text = _match_star(self.destination, ref)
        if star_text is None:
            return None
        return self.source.replace("*", star_text, 1)

    @property
    def folder(self) -> str:
        """The folder that refs are fetched into. For a refspec without a `*`, it's the destination ref."""
        before_star, star, _ = self.destination.partition("*")
        if not star:
            return self.destination
        folder, _, _ = before_star.rpartition("/")
        return folder


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
        """The refs of the remote that is pushed to, under all its names."""
        refs = []
        for name in self.names:
            refs += self.refs.get(name, [])
        return refs

    @property
    def other_refs(self) -> list[TrackedRef]:
        """The refs of all other remotes."""
        others = []
        for name, refs in self.refs.items():
            if name not in self.names:
                others += refs
        return others

    def default_branch(self, name: str, remote_oids: Mapping[str, str]) -> str | None:
        """Return the newest known commit of a remote's default branch. None if it's unknown.

        `remote_oids` are the commits of the remote's refs during the push, by ref. They are newer than the
        refs from the last fetch.
        """
        refs = self.refs.get(name, [])
        ref_by_name = {ref.name: ref for ref in refs}
        ref_by_source = {ref.source: ref for ref in refs}
        candidates = []

        head = ref_by_name.get(f"{_REMOTES}{name}/HEAD") or ref_by_source.get("HEAD")
        if head is not None:
            if not head.target:  # HEAD points to a commit instead of a branch
                return head.oid
            candidates.append(ref_by_name.get(head.target))

        # Without a usable HEAD, guess the branch from the common names.
        candidates.append(ref_by_source.get(f"{_BRANCHES}main"))
        candidates.append(ref_by_source.get(f"{_BRANCHES}master"))

        for ref in candidates:
            if ref is not None:
                return remote_oids.get(ref.source) or ref.oid
        return None


def read_remotes(repository: Repository, remote: str, url: str = "") -> Remotes:
    """Read this clone's remotes and their refs, and find those that a push to `remote` or `url` goes to.

    A refspec says which refs are fetched from a remote. Refs in refs/remotes/ that belong to no single remote
    are listed under the name "".
    """
    addresses = _read_addresses(repository)
    pushed_names = _find_pushed_names(repository, addresses, remote, url)
    refspecs = _read_refspecs(repository)

    # Refspecs can put a remote's refs into other folders than refs/remotes/.
    ref_folders = {_REMOTES.rstrip("/")}
    for specs in refspecs.values():
        ref_folders.update(spec.folder for spec in specs if spec.folder)
    listed_refs = _list_refs(repository, sorted(ref_folders))

    # Map each remote to its refs, and each ref to its remotes.
    refs_by_remote: dict[str, list[TrackedRef]] = {}
    remotes_by_ref: defaultdict[str, set[str]] = defaultdict(set)
    for name in dict.fromkeys([*pushed_names, *addresses, *refspecs]):
        refs_by_remote[name] = _select_refs(name, refspecs.get(name, []), listed_refs)
        for ref in refs_by_remote[name]:
            remotes_by_ref[ref.name].add(name)

    # A remote owns the refs that no other remote shares.
    own_refs: dict[str, list[TrackedRef]] = {}
    owned_names: set[str] = set()
    for name, tracked_refs in refs_by_remote.items():
        # All names of the pushed remote stand for the same remote, so they can share refs.
        same_remote = set(pushed_names) if name in pushed_names else {name}
        own_refs[name] = [ref for ref in tracked_refs if remotes_by_ref[ref.name] <= same_remote]
        owned_names.update(ref.name for ref in own_refs[name])

    # The remaining refs have no owner. If `remote` is "", also keep the refs found for it.
    unowned = []
    for ref in listed_refs:
        if ref.name.startswith(_REMOTES) and ref.name not in owned_names:
            unowned.append(ref)
    own_refs[""] = [*own_refs.get("", []), *unowned]
    return Remotes(pushed_names, own_refs)


def list_remote_commits(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> list[str]:
    """List the commits that the refs of a remote (a name or URL) are known to point to.

    If the remote was never fetched, use the refs of all other remotes instead.
    """
    remotes = read_remotes(repository, remote, url)
    refs = remotes.pushed_refs or remotes.other_refs
    old_tips = [update.remote_oid for update in updates if not update.is_new]
    fetched_tips = [ref.oid for ref in refs]
    return list(dict.fromkeys([*old_tips, *fetched_tips]))


def list_upstream_commits(repository: Repository, upstreams: Sequence[str]) -> list[str]:
    """List the commits that this clone knows from its upstreams: the remotes with an address in `upstreams`.

    Syncing a fork pushes these commits, but upstream already has them, so they aren't judged.
    """
    if not upstreams:
        return []

    folder = os.path.realpath(repository.folder)
    upstream_addresses = {normalise_address(address, folder) for address in upstreams}
    refs = read_remotes(repository, "").refs
    oids: list[str] = []

    for name, addresses in _read_addresses(repository).items():
        remote_addresses = {normalise_address(address, folder) for address in addresses}
        is_upstream = not remote_addresses.isdisjoint(upstream_addresses)
        if is_upstream:
            oids += [ref.oid for ref in refs.get(name, [])]

    return list(dict.fromkeys(oids))


def _complete_name(ref: str) -> str:
    """Return a ref's full name, such as refs/heads/main for `main`. "" stays ""."""
    if ref == "@":  # git's short form of HEAD
        return "HEAD"
    if not ref or ref == "HEAD" or ref.startswith("refs/"):
        return ref
    return f"{_BRANCHES}{ref}"


def _match_star(pattern: str, ref: str) -> str | None:
    """Return the part of a ref that the pattern's `*` matches; None if the pattern doesn't match.

    Without a `*`, that part is "".
    """
    before, star, after = pattern.partition("*")
    if not star:
        return "" if ref == pattern else None
    is_long_enough = len(ref) >= len(before) + len(after)  # they mustn't overlap
    if not is_long_enough or not ref.startswith(before) or not ref.endswith(after):
        return None
    return ref[len(before) : len(ref) - len(after)]


def _read_addresses(repository: Repository) -> dict[str, list[str]]:
    """Read each remote's addresses, with git's `insteadOf` rewrites applied."""
    addresses: defaultdict[str, list[str]] = defaultdict(list)
    output = os.fsdecode(repository.ask("remote", "-v"))
    for line in output.split("\n"):
        if line:  # "NAME<tab>ADDRESS (fetch)" or "NAME<tab>ADDRESS (push)"
            name, _, address_and_use = line.partition("\t")
            address, _, _ = address_and_use.rpartition(" (")
            addresses[name].append(address)
    return dict(addresses)


def _find_pushed_names(
    repository: Repository, addresses: Mapping[str, Sequence[str]], remote: str, url: str
) -> list[str]:
    """List the names of all remotes with the address that's pushed to, `remote` first."""
    folder = os.path.realpath(repository.folder)
    # If `remote` isn't a name with addresses, it's an address itself.
    given_addresses = {url, *addresses.get(remote, [remote])}
    pushed_addresses = {
        normalise_address(address, folder) for address in given_addresses if address
    }

    names = [remote]
    for name, own_addresses in addresses.items():
        normalised = {normalise_address(address, folder) for address in own_addresses}
        if not normalised.isdisjoint(pushed_addresses) and name != remote:
            names.append(name)
    return names


def _read_refspecs(repository: Repository) -> dict[str, list[Refspec]]:
    """Read each remote's fetch refspecs from git's configuration."""
    try:
        raw = repository.ask("config", "-z", "--get-regexp", r"^remote\..*\.fetch$")
    except GitError:  # none is configured
        return {}

    refspecs: defaultdict[str, list[Refspec]] = defaultdict(list)
    for entry in os.fsdecode(raw).split("\0"):
        if entry:  # remote.NAME.fetch, a line break, and the refspec
            key, _, value = entry.partition("\n")
            name = key.removeprefix("remote.").removesuffix(".fetch")
            refspecs[name].append(Refspec.parse(value))

    return dict(refspecs)


def _list_refs(repository: Repository, folders: Iterable[str]) -> list[TrackedRef]:
    """List the refs under the given folders, except branches and tags, which can have local commits."""
    command = ("for-each-ref", "--format=%(refname) %(objectname) %(symref)")
    refs: list[TrackedRef] = []
    output = os.fsdecode(repository.ask(*command, *folders))
    for line in output.split("\n")[:-1]:  # each line ends with a newline
        name, oid, target = line.split(" ")  # the target is empty unless the ref is symbolic
        # A mirror's refspec fetches into local branches, where unpushed commits can be as well.
        if not name.startswith((_BRANCHES, _TAGS)):
            refs.append(TrackedRef(name=name, source="", oid=oid, target=target))
    return refs


def _select_refs(
    name: str, refspecs: Sequence[Refspec], listed: Sequence[TrackedRef]
) -> list[TrackedRef]:
    """List the refs that are fetched from a remote, each with its name on the remote (`source`).

    If the refspecs select no branches, all refs in the remote's folder are listed.
    """
    folder = f"{_REMOTES}{name}/"
    tracked_refs: list[TrackedRef] = []
    for ref in listed:
        source = _find_source(ref, folder, refspecs)
        if source is not None and not _is_excluded(source, refspecs):
            tracked_refs.append(ref._replace(source=source))

    has_branches = any(ref.source != "HEAD" for ref in tracked_refs)
    if has_branches:
        return tracked_refs

    # Assume that each ref in the folder is a branch of the same name on the remote.
    refs_in_folder = []
    for ref in listed:
        if ref.name.startswith(folder):
            refs_in_folder.append(ref._replace(source=_BRANCHES + ref.name.removeprefix(folder)))
    return refs_in_folder


def _find_source(ref: TrackedRef, folder: str, refspecs: Sequence[Refspec]) -> str | None:
    """Find the remote ref that is fetched into `ref`; None if nothing is."""
    if ref.name == f"{folder}HEAD" and ref.target:  # written by `git remote set-head`
        return "HEAD"
    for spec in refspecs:
        source = spec.source_of(ref.name)
        if source:
            return source
    return None


def _is_excluded(source: str, refspecs: Sequence[Refspec]) -> bool:
    """Whether a negative refspec excludes a ref of the remote."""
    negative = [spec for spec in refspecs if spec.is_negative]
    return any(_match_star(spec.source, source) is not None for spec in negative)
