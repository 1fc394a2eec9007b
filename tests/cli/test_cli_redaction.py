"""What a person hears of secrets in what is judged."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import secret_samples
from git_repo import GitRepo
from loopback import says
from outcome import by_user
from scripted import by_content, scores

from judgekit.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Served

SECRET = secret_samples.forms(11)["github classic"]
LEFT_OUT = "[redacted: GitHub token]"
PASSWORD = "Kuerbis2031!"
REFUSED = "1 secret was found, and judge.redact is refuse"
REFUSE = "judge: {redact: refuse}\n"
GOOD = says(scores(4, 4, 4))


@pytest.fixture
def keys(project: Path) -> Path:
    """A project with a document that holds a secret, and one that does not."""
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n")
    (project / "bad.md").write_text("# Other\n\nNothing of the kind.\n")
    return project


def test_secrets_are_left_out_and_counted_once(keys: Path, judgekit: Run, served: Served) -> None:
    (keys / "bad.md").write_text(f"# More\n\n{SECRET}\n\npassword = 'correcthorse'\n")
    done, asked = served(GOOD, "judge", "good.md", "bad.md", "--format", "json")
    sent = "\n".join(map(str, asked))
    assert ("Keys" in sent, SECRET in sent, "correcthorse" in sent) == (True, False, False)
    assert done.err == "judgekit: 3 secrets were removed before sending\n"
    about = ("--description", f"The password is {PASSWORD}.", "--acceptance", f"It works with {SECRET}.")
    shown = judgekit("judge", "good.md", "--task-id", "T-1", *about, "--show-prompt").out
    assert f"It works with {LEFT_OUT}" in shown
    assert (SECRET in shown, PASSWORD in shown) == (False, False)
    by_user("judge: {redact: false}\n")
    assert SECRET in judgekit("judge", "--show-prompt", "good.md").out


def test_nothing_is_sent_of_a_text_with_a_secret_where_the_user_refuses(
    keys: Path, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user(REFUSE)
    for command in ("judge good.md --format json", "compare good.md bad.md --prompt x"):
        done, asked = served(GOOD, *command.split())
        assert (done.code, asked, REFUSED in done.out) == (2, [], True)
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", good_md="# Good\n\nA sound document.\n", keys_md=f"# Keys\n\n{SECRET}\n")
    monkeypatch.chdir(work.folder)
    done, asked = served(by_content, "gate", "--base", "base")
    words = [line.split()[:2] for line in done.out.splitlines() if not line.startswith(" ")]
    assert words == [["GO", "good.md"], ["UNDETERMINED", "keys.md"]]
    assert REFUSED in done.out
    sent = "\n".join(map(str, asked))
    assert ("sound document" in sent, SECRET in sent, "# Keys" in sent) == (True, False, False)


@pytest.mark.parametrize(
    ("query", "root"), [(f"refresh the JWT {SECRET}", ".claude/memory"), ("refresh the JWT", "docs")]
)
def test_a_search_with_a_secret_asks_no_model(project: Path, served: Served, query: str, root: str) -> None:
    (project / "docs").mkdir(exist_ok=True)
    (project / "docs" / "refresh.md").write_text(f"# Refresh the JWT\n\nRefresh the JWT with {SECRET}\n")
    by_user(REFUSE)
    done, asked = served(says('{"keep": []}'), "search", query, "--judge", "--json", "--root", root)
    assert asked == []
    assert done.json["results"]
    assert "judge.redact is refuse" in done.json["degraded"] + done.err


@pytest.mark.parametrize("form", ["sarif", "junit"])
def test_reports_name_a_file_without_its_secret(project: Path, served: Served, form: str) -> None:
    (project / f"{SECRET}.md").write_text("# Good\n\nA sound document.\n")
    reply = says(scores(1, 1, 1, reasoning=f"It holds {SECRET}."))
    done, asked = served(reply, "judge", f"{SECRET}.md", "--format", form)
    assert LEFT_OUT in done.out
    assert SECRET not in "\n".join([done.out, *map(str, asked)])


def test_ledger_issues_and_reasons_have_no_secrets(project: Path, judgekit: Run, served: Served) -> None:
    def first(asked: Asked) -> Answer:
        better = re.findall(r"The text (\w+):", asked.text)[0]
        return says(json.dumps({"reasoning": f"It holds {SECRET}.", "better": better}))

    folder = project / f"password={PASSWORD}"
    folder.mkdir()
    (folder / f"{SECRET}.md").write_text("# Good\n\nA sound document.\n")
    task = ("--task-id", f"T-1 https://bob:{PASSWORD}@git.example/r")
    _, asked = served(GOOD, "judge", f"{folder.name}/{SECRET}.md", *task)
    served(says(scores(1, 1, 1)), "judge", "good.md", "--task-id", f"T-2 {SECRET}")
    issue = judgekit("escalate", f"T-2 {LEFT_OUT}", "--dry-run").out
    kept = "".join(path.read_text() for path in Ledger.of(project).folder.iterdir())
    sent = "\n".join(map(str, asked))
    assert ("T-1" in kept, "sound document" in sent, "Review needed: T-2" in issue) == (True, True, True)
    for each in (SECRET, PASSWORD):
        assert each not in kept + sent + issue
    done, asked = served(first, "compare", "bad.md", "good.md", "--prompt", "Which?", "--format", "json")
    assert asked
    assert (f"It holds {LEFT_OUT}" in done.out, SECRET in done.out) == (True, False)
