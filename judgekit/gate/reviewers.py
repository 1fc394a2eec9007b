"""Decides which overrides count in CI: those of reviewers named on the remote's default branch.

A pull request is judged in a job that its author controls. So neither a ledger there nor the branch itself
can tell who may override. The shared judge knows, by token, who gave an override, and the default branch
says whose count.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment
from judgekit.config.settings import list_reviewers
from judgekit.errors import JudgekitError
from judgekit.gate import policy, remotes
from judgekit.judging import shared
from judgekit.ledger import OverrideLine, store
from judgekit.ledger.records import find_newest_override, is_override_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.config.settings import Config
    from judgekit.gate.commits import ChangedFile
    from judgekit.git import Repository
    from judgekit.judging.documents import Document

# Variables set by CI servers: most set `CI`; then Azure Pipelines, TeamCity, Jenkins and AWS CodeBuild.
CI_VARIABLES = ("CI", "TF_BUILD", "TEAMCITY_VERSION", "JENKINS_URL", "CODEBUILD_BUILD_ID")
_EARLIEST_DATE = "0001-01-01"
_REVIEWER_ENTRY_PATTERN = re.compile(r"\s*(?P<token>[^<]*?)\s*(?:<(?P<email>[^>]*)>)?\s*")
_NOREPLY_EMAIL_PATTERN = re.compile(r"(?:\d+\+)?(?P<login>[^@]+)@users\.noreply\.github\.com")


def is_ci() -> bool:
    """Whether this process runs in a CI job."""
    return any(environment.is_on(variable) for variable in CI_VARIABLES)


class Reviewer(NamedTuple):
    """A token's name, and its holder's address in commits, or ""."""

    token: str
    email: str

    @classmethod
    def parse(cls, entry: str) -> Reviewer:
        """Parse an entry in `gate.reviewers`: `TOKEN` or `TOKEN <ADDRESS>`."""
        match = _REVIEWER_ENTRY_PATTERN.fullmatch(entry)
        if match is None:
            return cls(entry.strip(), "")
        return cls(match["token"], match["email"] or "")


@dataclass(frozen=True, slots=True)
class ReviewedOverrides:
    """A project's overrides on the shared judge, and the reviewers whose overrides count."""

    reviewers: Sequence[Reviewer] = ()
    overrides: Sequence[OverrideLine] = ()
    notes: list[str] = field(default_factory=list)

    def find(
        self, document: Document, change: ChangedFile, *, without_terminal: bool
    ) -> OverrideLine | None:
        """Find a file's newest override by a reviewer, or None.

        Adds a note to `notes` for each override that doesn't count, such as one by the file's author.
        Overrides given without a terminal only count if `without_terminal`.
        """
        hashes = [file.sha256 for file in document.files]
        counting_overrides = []

        for override in self.overrides:
            if not is_override_of(override, document.task_id, hashes):
                continue

            objection = self._find_objection(override, change, without_terminal=without_terminal)
            if objection:
                description = f"{override.decision} by {override.who} ({override.why})"
                self.notes.append(
                    f"{document.task_id}: {description} doesn't count here: {objection}"
                )
            else:
                counting_overrides.append(override)

        # All of these are for this file and count, so the result is simply the newest.
        return find_newest_override(
            counting_overrides,
            document.task_id,
            hashes,
            without_terminal=without_terminal,
        )

    def _find_objection(
        self, override: OverrideLine, change: ChangedFile, *, without_terminal: bool
    ) -> str:
        """Explain why an override doesn't count; "" if it does."""
        # A token can be listed with multiple addresses, and its holder may have used any of them in commits.
        listed_reviewers = [
            reviewer for reviewer in self.reviewers if reviewer.token == override.who
        ]
        if not listed_reviewers:
            return "gate.reviewers of the default branch doesn't name this token"
        if any(is_author(reviewer, change) for reviewer in listed_reviewers):
            return "authors don't clear their own files"

        is_given_properly = override.terminal or without_terminal
        if not is_given_properly:
            return "it was given without a terminal"
        return ""


def is_author(reviewer: Reviewer, change: ChangedFile) -> bool:
    """Whether a reviewer may have contributed to a file, going by names and addresses in commits."""
    # Match loosely: after a wrong match, another reviewer has to decide. After a missed one, authors could
    # approve their own files.
    reviewer_names = {
        _normalise_name(reviewer.token),  # the token's name, often that of its holder
        _normalise_name(reviewer.email),
    }
    reviewer_names.discard("")  # the address can be missing

    for commit in (change.commit, *change.earlier_commits):
        for person in commit.people:
            if reviewer_names & _list_names(person):
                return True
    return False


def _list_names(person: str) -> set[str]:
    """List a person's name, e-mail address, account name and GitHub login, from `Name <address>`."""
    name, _, address = person.partition("<")
    email = address.rstrip("> ")
    account, _, _ = email.partition("@")
    names = {_normalise_name(name), _normalise_name(email), _normalise_name(account)}
    noreply = _NOREPLY_EMAIL_PATTERN.fullmatch(email)
    if noreply is not None:
        names.add(_normalise_name(noreply["login"]))
    return names


def _normalise_name(name: str) -> str:
    """Remove spaces and case from a name, so that different spellings are equal."""
    return "".join(name.casefold().split())


def read_overrides(repository: Repository, settings: Config, project: str) -> ReviewedOverrides:
    """Read people's overrides from the shared judge, and the reviewers from the default branch.

    Without a shared judge, there are no overrides. If reading fails, there are none either, and a note says
    why.
    """
    notes: list[str] = []
    try:
        server = shared.find_shared_judge(settings)
        if server is None:  # no shared judge is configured
            return ReviewedOverrides(notes=notes)

        reviewers = _read_reviewers(repository, notes)
        overrides = list(_fetch_overrides(server, project))
    except JudgekitError as error:
        notes.append(f"overrides are not known: {error}")
        return ReviewedOverrides(notes=notes)

    return ReviewedOverrides(reviewers=reviewers, overrides=overrides, notes=notes)


def _fetch_overrides(server: shared.Shared, project: str) -> Iterable[OverrideLine]:
    """Yield all of a project's overrides from the shared judge; raises `SharedError`."""
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        file = Path(folder) / "fetched.jsonl"
        server.fetch(_EARLIEST_DATE, project, file, kind="override")
        line_filter = store.LineFilter(project=project, kinds=[OverrideLine])
        for entry in store.read_entries([file], line_filter):
            if isinstance(entry.record, OverrideLine):  # always, but the type checker doesn't know
                yield entry.record


def _read_reviewers(repository: Repository, notes: list[str]) -> list[Reviewer]:
    """Read `gate.reviewers` from the remote's default branch.

    If this clone lacks that branch, there are no reviewers, and a note says why.
    """
    clone_remotes = remotes.read_remotes(repository, "origin")
    # Without a push, the remote's refs are those of the last fetch.
    commit = clone_remotes.find_default_tip("origin", remote_oids={})
    if commit is None:
        notes.append(
            "no override counts: the default branch of origin is not in this clone, so its gate.reviewers "
            "are not known; fetch it (git fetch origin, with fetch-depth: 0 of actions/checkout)"
        )
        return []

    with policy.check_out_rules(repository, commit) as folder:
        return [Reviewer.parse(entry) for entry in list_reviewers(folder)]
