"""Thirty prompts of one session: no memory is injected again until the client has forgotten it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hooking import by_user

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[2] / "examples" / "project"
# People are signed out after a release. Seven memories answer, again and again. Some prompts join several,
# and two name one: by its path, and by its title.
PROMPTS = (
    "How do we refresh the JWT token?",
    "Write a test for the JWT token refresh with two threads at once.",
    "Does personal data stay in the EU region?",
    "How does the JWT token refresh work, and does personal data leave the EU region?",
    "Redis memory is full and people lose their sessions, what now?",
    "Which keys should I delete when Redis memory is full?",
    "When is the release deployed to production, and who may roll it back?",
    "Roll back the deploy to production, because the JWT token refresh fails.",
    "What are the API rate limits for each key?",
    "Does the token refresh count towards the API rate limits?",
    "How do we run database migrations without downtime?",
    "Add a column with a database migration without downtime, then deploy to production.",
    "Which HTTP client do we use, requests or httpx?",
    "Set explicit timeouts in httpx for the JWT token refresh call.",
    "Redis memory is full again. Are backups with personal data in the EU region lost?",
    "Show me decisions/jwt-token-refresh.json and explain the token refresh.",
    "Deploying to production failed: how do we roll back the database migrations without downtime?",
    "Which API rate limits hold for a key, and which timeouts for httpx?",
    "Is the JWT token refresh flow described for the web client?",
    "Raise the memory of Redis, which is full, and then deploy to production.",
    "Which backups hold personal data, and do they stay in the EU region?",
    "Retry with httpx after the API rate limits say 429.",
    "Which database migrations run before we deploy to production?",
    "What happens to people's sessions while we roll back the deploy to production?",
    "Write an alert for Redis when its memory is full and sessions are lost.",
    "Document the API rate limits and how to refresh the JWT token.",
    "Does httpx reuse connections, and what are its explicit timeouts?",
    "Test the database migrations without downtime on a copy.",
    "Who approves deploying to production, and how do we roll it back?",
    "Sum up: JWT token refresh, personal data in the EU region, Redis memory full.",
)
NAMING = {PROMPTS[15], PROMPTS[18]}
AFTER = 20  # prompts after which a memory comes back: the default
MIDDLE = 15


Run: TypeAlias = "Callable[..., tuple[str, list[str]]]"


def session(project: Path, run: Run, name: str, *, compacted: bool = False) -> list[set[str]]:
    """Ask every prompt in one session; return the memories that each answer injects."""
    payload = {"cwd": str(project), "session_id": name}
    injected = []
    for number, prompt in enumerate(PROMPTS):
        if compacted and number == MIDDLE:
            assert run(payload | {"hook_event_name": "SessionStart", "source": "compact"}) == (
                "",
                [],
            )
        text, errors = run(payload | {"prompt": prompt})
        assert errors == []
        lines = [line for line in text.split("\n") if line.startswith("<result ")]
        injected.append({line.partition(" -> ")[2].partition(" ")[0] for line in lines})
    return injected


def repeats(injected: list[set[str]]) -> list[tuple[str, int]]:
    """Return each repeat: its prompt, and how many prompts ago the memory was injected before."""
    seen, found = dict[str, int](), []
    for number, memories in enumerate(injected):
        found += [
            (PROMPTS[number], number - seen[memory]) for memory in sorted(memories & seen.keys())
        ]
        seen |= dict.fromkeys(memories, number)
    return found


def test_nothing_is_said_twice_until_the_client_forgets_it(tmp_path: Path, run: Run) -> None:
    project = Path(shutil.copytree(EXAMPLE, tmp_path / "project"))
    by_user("retrieval: {repeat_after: 0}\n")
    every = session(project, run, "one")
    by_user("")
    once = session(project, run, "two")
    assert len(set().union(*every)) == 7
    assert set().union(*once) == set().union(*every), "nothing is lost"
    assert len(repeats(every)) == 33
    assert len(repeats(once)) == 5, "at most a fifth of them is left"
    assert all(prompt in NAMING or ago > AFTER for prompt, ago in repeats(once))

    anew = session(project, run, "three", compacted=True)
    assert anew[:MIDDLE] == once[:MIDDLE]
    before, after = (set().union(*each) for each in (anew[:MIDDLE], every[MIDDLE:]))
    assert len(before & after) >= 6, "most are relevant again"
    for memory in after:
        first = next(number for number in range(MIDDLE, len(PROMPTS)) if memory in every[number])
        assert memory in anew[first], f"{memory} is injected again as soon as it is relevant"
