"""What a person hears of secrets in what is judged."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import secret_samples
from git_repo import GitRepo
from loopback import Loopback, says
from scripted import by_content, scores

from judgekit.config import settings
from judgekit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Outcome

SECRET = secret_samples.forms(11)["github classic"]
PASSWORD = "Kuerbis2031!"


def test_secrets_are_left_out_and_counted_once(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n\npassword = 'correcthorse'\n")
    (project / "bad.md").write_text(f"# More\n\n{SECRET}\n")
    with Loopback(says(scores(4, 4, 4))) as server:
        use(server)
        done = judgekit("judge", "good.md", "bad.md", "--format", "json")
        sent = "\n".join(str(request) for request in server.requests)
    assert "Keys" in sent
    assert SECRET not in sent
    assert "correcthorse" not in sent
    assert done.err == "judgekit: 3 secrets were left out of what is sent\n"


def test_a_prompt_is_shown_as_it_would_be_sent(judgekit: Callable[..., Outcome], project: Path) -> None:
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n")
    done = judgekit("judge", "--show-prompt", "good.md")
    assert SECRET not in done.out
    assert "[redacted: GitHub token]" in done.out


def test_the_user_may_have_them_sent(judgekit: Callable[..., Outcome], project: Path, isolated: Path) -> None:
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n")
    (isolated / "judgekit").mkdir(exist_ok=True)
    (isolated / "judgekit" / "config.yaml").write_text("judge: {redact: false}\n")
    assert SECRET in judgekit("judge", "--show-prompt", "good.md").out


def test_nothing_is_sent_of_a_text_with_a_secret_where_the_user_refuses(
    judgekit: Callable[..., Outcome], project: Path, isolated: Path, use: Callable[[Loopback], None]
) -> None:
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n")
    (project / "bad.md").write_text("# Other\n\nNothing of the kind.\n")
    (isolated / "judgekit").mkdir(exist_ok=True)
    (isolated / "judgekit" / "config.yaml").write_text("judge: {redact: refuse}\n")
    with Loopback(says(scores(4, 4, 4))) as server:
        use(server)
        done = judgekit("judge", "good.md", "--format", "json")
        compared = judgekit("compare", "good.md", "bad.md", "--prompt", "Which?")
        assert list(server.requests) == []
    assert done.code == compared.code == 2
    assert "1 secret was found, and judge.redact is refuse" in done.out
    assert "1 secret was found, and judge.redact is refuse" in compared.out


REFUSE = "judge: {redact: refuse}\n"
REFUSED = "1 secret was found, and judge.redact is refuse"


def by_user(text: str) -> None:
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text)


def test_the_gate_sends_nothing_of_a_file_with_a_secret_where_the_user_refuses(
    judgekit: Callable[..., Outcome],
    tmp_path: Path,
    use: Callable[[Loopback], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", good_md="# Good\n\nA sound document.\n", keys_md=f"# Keys\n\n{SECRET}\n")
    monkeypatch.chdir(work.folder)
    by_user(REFUSE)
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("gate", "--base", "base")
        sent = "\n".join(str(request) for request in server.requests)
    words = [line.split()[:2] for line in done.out.splitlines() if not line.startswith(" ")]
    assert words == [["GO", "good.md"], ["UNDETERMINED", "keys.md"]]
    assert REFUSED in done.out
    assert "sound document" in sent
    assert SECRET not in sent
    assert "# Keys" not in sent


@pytest.mark.parametrize("query", [f"refresh the JWT {SECRET}", "refresh the JWT"])
def test_a_search_asks_no_model_where_the_user_refuses(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None], query: str
) -> None:
    (project / "docs").mkdir(exist_ok=True)
    (project / "docs" / "refresh.md").write_text(f"# Refresh the JWT\n\nRefresh the JWT with {SECRET}\n")
    root = ".claude/memory" if SECRET in query else "docs"
    by_user(REFUSE)
    with Loopback(says('{"keep": []}')) as server:
        use(server)
        done = judgekit("search", query, "--judge", "--json", "--root", root)
        assert list(server.requests) == []
    assert done.json["results"]
    assert "judge.redact is refuse" in done.json["degraded"] + done.err


@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_reports_name_a_file_without_its_secret(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None], form: str
) -> None:
    (project / f"{SECRET}.md").write_text("# Good\n\nA sound document.\n")
    with Loopback(says(scores(1, 1, 1, reasoning=f"It holds {SECRET}."))) as server:
        use(server)
        done = judgekit("judge", f"{SECRET}.md", "--format", form)
        assert all(SECRET not in str(request) for request in server.requests)
    assert "[redacted: GitHub token]" in done.out
    assert SECRET not in done.out


def test_names_in_the_ledger_have_no_secrets(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    folder = project / f"password={PASSWORD}"
    folder.mkdir()
    (folder / f"{SECRET}.md").write_text("# Good\n\nA sound document.\n")
    with Loopback(says(scores(4, 4, 4))) as server:
        use(server)
        task = ("--task-id", f"T-1 https://bob:{PASSWORD}@git.example/r")
        judgekit("judge", f"{folder.name}/{SECRET}.md", *task)
        sent = "\n".join(str(request) for request in server.requests)
    kept = "".join(path.read_text() for path in Ledger.of(project).folder.iterdir())
    assert "T-1" in kept
    assert "sound document" in sent
    for each in (SECRET, PASSWORD):
        assert each not in kept
        assert each not in sent


def test_an_issue_names_a_task_without_its_secret(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    task = f"T-1 {SECRET}"
    with Loopback(says(scores(1, 1, 1))) as server:
        use(server)
        judgekit("judge", "good.md", "--task-id", task)
    done = judgekit("escalate", "T-1 [redacted: GitHub token]", "--dry-run")
    assert "Review needed: T-1" in done.out
    assert SECRET not in done.out


def test_what_a_document_is_for_is_sent_without_secrets(
    judgekit: Callable[..., Outcome], project: Path
) -> None:
    about = ("--description", f"The password is {PASSWORD}.", "--acceptance", f"It works with {SECRET}.")
    done = judgekit("judge", "good.md", "--task-id", "T-1", *about, "--show-prompt")
    assert "It works with [redacted: GitHub token]" in done.out
    for each in (SECRET, PASSWORD):
        assert each not in done.out


def test_what_models_say_of_a_comparison_has_no_secrets(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    def first(asked: Asked) -> Answer:
        better = re.findall(r"The text (\w+):", asked.text)[0]
        return says(json.dumps({"reasoning": f"It holds {SECRET}.", "better": better}))

    with Loopback(first) as server:
        use(server)
        done = judgekit("compare", "bad.md", "good.md", "--prompt", "Which?", "--format", "json")
        assert list(server.requests)
    assert "It holds [redacted: GitHub token]" in done.out
    assert SECRET not in done.out
