"""The remote of a push, and this clone's knowledge of it: the refs it was fetched into."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from judgekit.git import GitError, normalise_address

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

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
        # A leading `+` permits forced updates. It makes no difference to which refs are fetched.
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
        """The refs of the remotes that aren't pushed to."""
        others = []
        for name, refs in self.refs.items():
            if name not in self.names:
                others += refs
        return others

    def find_default_tip(self, name: str, remote_oids: Mapping[str, str]) -> str | None:
        """Return the newest known commit of a remote's default branch. None if it's unknown.

        `remote_oids` are the commits of the remote's refs during the push, by ref. They are newer than the
        refs from the last fetch.
        """
        refs = self.refs.get(name, [])
        head = _find_head(refs, name)
        if head is not None and not head.target:  # HEAD points to a commit instead of a branch
            return head.oid

        branch = _find_head_branch(refs, head) or _guess_default_branch(refs)
        if branch is None:
            return None
        ref_on_remote = branch.source
        return remote_oids.get(ref_on_remote) or branch.oid


def _find_head(refs: Sequence[TrackedRef], name: str) -> TrackedRef | None:
    """Find a remote's HEAD: the ref in its folder, or else the ref that was fetched from HEAD."""
    ref_by_name = {ref.name: ref for ref in refs}
    ref_by_source = {ref.source: ref for ref in refs}
    return ref_by_name.get(f"{_REMOTES}{name}/HEAD") or ref_by_source.get("HEAD")


def _find_head_branch(refs: Sequence[TrackedRef], head: TrackedRef | None) -> TrackedRef | None:
    """Find the branch that a remote's HEAD points to. None without a HEAD, or without this branch."""
    if head is None:
        return None
    ref_by_name = {ref.name: ref for ref in refs}
    return ref_by_name.get(head.target)


def _guess_default_branch(refs: Sequence[TrackedRef]) -> TrackedRef | None:
    """Find the branch with one of the common names, `main` or else `master`."""
    ref_by_source = {ref.source: ref for ref in refs}
    return ref_by_source.get(f"{_BRANCHES}main") or ref_by_source.get(f"{_BRANCHES}master")


def read_remotes(repository: Repository, remote: str, url: str = "") -> Remotes:
    """Read this clone's remotes with their refs, and find out which of them is pushed to.

    Refs in refs/remotes/ that belong to no remote, or to multiple ones, are listed under the name "".
    """
    addresses = _read_addresses(repository)
    # Remotes with the same address count as one remote with multiple names.
    pushed_names = _find_pushed_names(repository, addresses, remote, url)
    refspecs = _read_refspecs(repository)  # they say which refs are fetched from each remote
    folders = _list_ref_folders(refspecs)
    listed_refs = _list_refs(repository, folders)

    names = dict.fromkeys([*pushed_names, *addresses, *refspecs])  # each name once
    refs_by_remote: dict[str, list[TrackedRef]] = {}
    for name in names:
        refs_by_remote[name] = _select_refs(name, refspecs.get(name, []), listed_refs)
    own_refs = _drop_shared_refs(refs_by_remote, pushed_names)

    unowned_refs = _list_unowned_refs(listed_refs, own_refs)
    refs_of_nameless_remote = own_refs.get("", [])  # git permits a section [remote ""]
    own_refs[""] = [*refs_of_nameless_remote, *unowned_refs]
    return Remotes(pushed_names, own_refs)


def _list_ref_folders(refspecs: Mapping[str, Sequence[Refspec]]) -> list[str]:
    """List the folders that can have remotes' refs: refs/remotes/, and each refspec's destination."""
    folders = {_REMOTES.rstrip("/")}
    for specs in refspecs.values():
        for spec in specs:
            if spec.folder:  # it's "" for a refspec without a destination
                folders.add(spec.folder)
    return sorted(folders)


def _drop_shared_refs(
    refs_by_remote: Mapping[str, Sequence[TrackedRef]], pushed_names: Sequence[str]
) -> dict[str, list[TrackedRef]]:
    """Drop each ref that belongs to multiple remotes.

    `pushed_names` are different names of one remote, so refs that only these share are kept.
    """
    names_by_ref: defaultdict[str, set[str]] = defaultdict(set)
    for name, refs in refs_by_remote.items():
        for ref in refs:
            names_by_ref[ref.name].add(name)

    own_refs: dict[str, list[TrackedRef]] = {}
    for name, refs in refs_by_remote.items():
        names_of_remote = set(pushed_names) if name in pushed_names else {name}
        own_refs[name] = [ref for ref in refs if names_by_ref[ref.name] <= names_of_remote]
    return own_refs


def _list_unowned_refs(
    listed_refs: Iterable[TrackedRef], own_refs: Mapping[str, Sequence[TrackedRef]]
) -> list[TrackedRef]:
    """List the refs in refs/remotes/ that no remote owns."""
    owned_names = {ref.name for refs in own_refs.values() for ref in refs}
    remote_refs = [ref for ref in listed_refs if ref.name.startswith(_REMOTES)]
    return [ref for ref in remote_refs if ref.name not in owned_names]


def list_remote_commits(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> list[str]:
    """List the commits that a remote's refs point to, before this push and at the last fetch.

    `remote` is a name or a URL. If it was never fetched, the refs of all other remotes count instead.
    """
    # git says for each pushed ref where it is on the remote. A new ref isn't there yet.
    tips_before_push = [update.remote_oid for update in updates if not update.is_new]

    remotes = read_remotes(repository, remote, url)
    fetched_refs = remotes.pushed_refs or remotes.other_refs
    fetched_tips = [ref.oid for ref in fetched_refs]
    return list(dict.fromkeys([*tips_before_push, *fetched_tips]))  # each commit once


def list_upstream_commits(repository: Repository, upstreams: Sequence[str]) -> list[str]:
    """List the commits that this clone knows from its upstreams: the remotes with an address in `upstreams`.

    Syncing a fork pushes these commits, but upstream already has them, so they aren't judged.
    """
    if not upstreams:
        return []

    folder = os.path.realpath(repository.folder)
    upstream_addresses = {normalise_address(address, folder) for address in upstreams}
    # "" stands for no remote, because it doesn't matter here which one is pushed to.
    refs_by_remote = read_remotes(repository, "").refs

    oids: list[str] = []
    for name, addresses in _read_addresses(repository).items():
        if _has_address(addresses, upstream_addresses, folder):
            oids += [ref.oid for ref in refs_by_remote.get(name, [])]

    return list(dict.fromkeys(oids))


def _has_address(addresses: Iterable[str], normalised: Container[str], folder: str) -> bool:
    """Whether one of a remote's addresses is among the normalised ones. Paths are relative to `folder`."""
    return any(normalise_address(address, folder) in normalised for address in addresses)


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
    is_match = is_long_enough and ref.startswith(before) and ref.endswith(after)
    if is_match:
        return ref[len(before) : len(ref) - len(after)]
    return None


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
    """List the names of the remote that's pushed to: `remote`, then all remotes with the same address.

    `remote` can also be an address. `url` is the address that git pushes to, or "" if it's unknown.
    """
    folder = os.path.realpath(repository.folder)  # relative addresses start here
    is_name = remote in addresses
    remote_addresses = addresses[remote] if is_name else [remote]

    pushed_addresses: set[str] = set()
    for address in (url, *remote_addresses):
        if address:
            pushed_addresses.add(normalise_address(address, folder))

    names = [remote]
    for name, configured_addresses in addresses.items():
        if _has_address(configured_addresses, pushed_addresses, folder):
            names.append(name)
    return list(dict.fromkeys(names))  # `remote` can be among them twice


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

    If the refspecs select nothing besides HEAD, all refs in the remote's folder are listed.
    """
    folder = f"{_REMOTES}{name}/"
    selected_refs = _select_by_refspecs(folder, refspecs, listed)
    is_more_than_head = any(ref.source != "HEAD" for ref in selected_refs)
    if is_more_than_head:
        return selected_refs
    return _select_by_folder(folder, listed)


def _select_by_refspecs(
    folder: str, refspecs: Sequence[Refspec], listed: Sequence[TrackedRef]
) -> list[TrackedRef]:
    """List the refs that a remote's refspecs fetch into. `folder` is the remote's usual folder."""
    selected_refs: list[TrackedRef] = []
    for ref in listed:
        source = _find_source(ref, folder, refspecs)
        if source is not None and not _is_excluded(source, refspecs):
            selected_refs.append(ref._replace(source=source))
    return selected_refs


def _select_by_folder(folder: str, listed: Sequence[TrackedRef]) -> list[TrackedRef]:
    """List the refs in a remote's folder, as if each were a branch of the same name on the remote."""
    selected_refs: list[TrackedRef] = []
    for ref in listed:
        if ref.name.startswith(folder):
            branch = ref.name.removeprefix(folder)
            selected_refs.append(ref._replace(source=f"{_BRANCHES}{branch}"))
    return selected_refs


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
