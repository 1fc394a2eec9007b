"""What a person hears of secrets in what is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import secret_samples
from loopback import Loopback, says
from scripted import scores

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

SECRET = secret_samples.forms(11)["github classic"]


def test_secrets_are_left_out_and_counted_once(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    (project / "good.md").write_text(f"# Keys\n\n{SECRET}\n\npassword = 'correcthorse'\n")
    (project / "bad.md").write_text(f"# More\n\n{SECRET}\n")
    with Loopback(says(scores(4, 4, 4))) as server:
        use(server)
        done = judgekit("judge", "good.md", "bad.md", "--format", "json")
        sent = "\n".join(str(each) for each in server.requests)
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
