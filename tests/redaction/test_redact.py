"""Secrets are left out of what is sent, wherever they stand and a text is cut; all else stays as it is."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import secret_texts
from hypothesis import given
from hypothesis import strategies as st
from making import (
    PanelModels,
    candidate_judge,
    comparison_input,
    document,
    document_judge,
    file,
    judge_settings,
    query,
    reply,
)
from making import prompt_candidate as candidate
from pattern_samples import draw_match
from scripted import NothingOpen, three_models

import judgekit
from judgekit.config import TIERS
from judgekit.judging import outgoing
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import CONTEXT_CHARS, File, TaskDescription
from judgekit.judging.ranking import RankingJudge
from judgekit.redaction import secret_rules
from judgekit.redaction.redact import redact, without_secrets
from judgekit.rubric import loader
from judgekit.text import remove_invisible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.judging.documents import ComparisonInput
    from judgekit.providers.base import Endpoint, Reply, Request

AROUND = ["{}", "use {} here", '"{}",', "key={}\nnext", "(`{}`)", "<a>{}</a>"]


@pytest.mark.parametrize("kind", sorted(secret_texts.FORMS))
def test_a_secret_that_is_known_by_its_form_is_left_out_whole(kind: str) -> None:
    for secret in (secret_texts.form(kind, seed) for seed in range(5)):
        for around in AROUND:
            redacted = redact(around.format(secret))
            assert redacted.secrets == 1
            assert "[redacted: " in redacted.text
            assert secret not in redacted.text
            assert secret[-12:] not in redacted.text
            before, after = around.split("{}")
            assert redacted.text.startswith(before.removesuffix("key="))
            assert redacted.text.endswith(after)


@pytest.mark.parametrize("way", sorted(secret_texts.WAYS))
def test_a_secret_that_is_given_by_name_or_place_is_left_out(way: str) -> None:
    for text, secrets in (secret_texts.drawn(secret_texts.WAYS[way], seed) for seed in range(5)):
        redacted = redact(f"Before it.\n{text}\nAfter it.\n")
        assert not [secret for secret in secrets if secret in redacted.text]
        assert redacted.secrets == 1
        assert redacted.text.startswith("Before it.\n")
        assert redacted.text.endswith("\nAfter it.\n")


def test_prose_in_the_place_of_a_key_is_not_hidden_from_the_judge() -> None:
    prose = "Run this as root without any further question asked of anybody who might object"
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{prose}\n-----END RSA PRIVATE KEY-----"
    assert prose in redact(text).text
    lines = secret_texts.BLOCK.split("\n")
    redacted = redact("\n".join([*lines[:4], prose, *lines[4:]]))
    assert prose in redacted.text
    assert not any(line in redacted.text for line in lines[1:-1])
    cut = secret_texts.BLOCK[:390]
    redacted = redact(f"{cut}\n\nAnd then prose goes on, as it does.")
    assert redacted.text.endswith("And then prose goes on, as it does.")
    assert cut[100:130] not in redacted.text
    assert cut[-15:] not in redacted.text


def test_a_private_key_is_left_out_whatever_its_lines_begin_with() -> None:
    for how, block in secret_texts.key_blocks():
        redacted = redact(f"Before it.\n\n{block}\n\nAfter it.\n")
        assert not secret_texts.leaks(redacted.text, secret_texts.KEY_PARTS), how
        assert redacted.text.startswith("Before it.\n"), how
        assert redacted.text.endswith("After it.\n"), how
        assert redacted.secrets >= 1, how
    # Of one as it is nothing is left, and lines keep their numbers.
    redacted = redact(f"one\n{secret_texts.BLOCK}\nlast")
    gone = "\n" * secret_texts.BLOCK.count("\n")
    assert redacted == (f"one\n[redacted: private key]{gone}\nlast", 1)


SURROUNDINGS = (
    "SECRET_KEY = '{}'\n",
    '{{"api_key": "{}"}}',
    '  "password": "{}",',
    'client_secret = "{}"\n',
)
BARE = ("  DB_PASSWORD: {}\n", "APP_PASSWORD={}\n", "export SERVICE_TOKEN={}\n")


@pytest.mark.parametrize("generator", sorted(secret_texts.generated(0)))
def test_what_a_generator_made_is_left_out(generator: str) -> None:
    """At least 99 of 100; without quotes only what holds nothing that would end it there."""
    drawn = [secret_texts.generated(seed)[generator] for seed in range(100)]
    for around in (*SURROUNDINGS, *BARE):
        values = [
            value for value in drawn if not (around in BARE and set("()[]{}<>,;") & set(value))
        ]
        missed = [value for value in values if value in redact(around.format(value)).text]
        assert len(missed) <= len(values) / 100, (around, missed[:5])


def test_passwords_as_people_write_them_are_left_out() -> None:
    for text in (
        "password: Tr0ub4dor&3",
        'password = "correct horse battery staple"',
        '"passphrase": "Blue tiger 42 lake"',
        "passwd=letmein",
        "sshpass -p 'swordfish' ssh host",
        "mysql -u root -pswordfish shop",
        "mysqldump --all -u root -p'sword7fish'",
        "?user=ann&password=a1b2c3&next=x",
    ):
        assert redact(text).secrets == 1, text
    assert redact('password = "correcthorse"').text == 'password = "[redacted: password]"'
    assert (
        redact("postgres://ann:correcthorse@db/app").text
        == "postgres://ann:[redacted: password]@db/app"
    )
    assert redact("DB_PASSWORD=correcthorse").text == "DB_PASSWORD=[redacted: password]"
    aws, stripe, npm = (secret_texts.form(kind, 2) for kind in ("aws", "stripe", "npm"))
    assert redact(f"{aws}\n{stripe} {npm}\npassword: 'correcthorse'").secrets == 4
    hidden = "\u200b".join(secret_texts.form("github classic", 2))
    assert redact(hidden).text == "[redacted: GitHub token]"


PACKAGE = Path(judgekit.__file__).parent
RULES = tomllib.loads((PACKAGE / "redaction" / "secret_rules.toml").read_text("utf-8"))


@pytest.mark.parametrize("language", sorted(RULES["languages"]))
def test_a_password_is_left_out_whatever_the_language_of_its_name(language: str) -> None:
    for word in RULES["languages"][language].split():
        name = word.replace("_", " ")
        sizes = (name, name.capitalize(), name.upper())
        for size in sizes:
            for text in (
                f"{size}: kV9#mQ2z",
                f"{size}\uff1akV9#mQ2z",
                f'{size} = "lindenbaum"',
                f"| x | {size} |\n|---|---|\n| ann | lindenbaum |",
            ):
                redacted = redact(text)
                assert redacted.secrets == 1, text
                assert "kV9" not in redacted.text, text
                assert "lindenbaum" not in redacted.text, text


def test_a_password_in_a_sentence_is_left_out_in_many_languages() -> None:
    for text in (
        "Пароль от сервера: kV9#mQ2z",
        "Пароль — kV9#mQ2z",
        "Hasło do bazy: kV9#mQ2z",
        "haslo jest kV9#mQ2z",
        "\u039f κωδικός πρόσβασης είναι kV9#mQ2z",
        "Heslo je kV9#mQ2z",
        "Mật khẩu là kV9#mQ2z",
        "初始密码是kV9#mQ2z\uff0c请修改",
        "パスワードはkV9#mQ2zです",
        "הסיסמה היא kV9#mQ2z",
    ):
        assert "kV9#mQ2z" not in redact(text).text, text


WORDLESS = 20_000  # samples after which a word counts as one that no branch has


def can_stand_for_another(
    word: str, words: Sequence[str], texts: Sequence[str], pattern: re.Pattern[str]
) -> bool:
    """Whether a text is found with a word in the place of another one, and not with nonsense there."""
    for text in texts:
        for other in words:
            if other not in text or pattern.search(text.replace(other, "zqxjv")):
                continue
            if pattern.search(text.replace(other, word)):
                return True
    return False


@pytest.mark.parametrize("section", ["forms", pytest.param("places", marks=pytest.mark.slow)])
def test_each_word_of_a_rule_has_a_branch_that_finds_it(section: str) -> None:
    """A word without one only costs time, and looks as if its kind were found."""
    draw = random.Random(5)
    for kind, words, pattern in secret_rules.read_rows(section):
        missing, compiled, tries = {*words}, re.compile(pattern), 0
        texts: list[str] = []
        while missing and tries < WORDLESS:
            tries += 1
            sample = draw_match(pattern, draw)
            if section == "places":
                sample = sample.lower()
            if compiled.search(sample):
                missing = {word for word in missing if word not in sample}
                texts.append(sample)
        # Of hundreds of names some are drawn too rarely: they must do in the place of another one.
        missing = {
            word
            for word in missing
            if not can_stand_for_another(word, words, texts[:200], compiled)
        }
        assert not missing, (kind, pattern)


def test_what_is_no_secret_stays() -> None:
    for text in secret_texts.HARMLESS:
        assert redact(text) == (text, 0)


@given(st.text() | st.text("sk-ant_pi03AKI=:\"'@/.\n password", max_size=300))
def test_redacting_twice_changes_nothing_and_lines_stay(text: str) -> None:
    once = redact(text)
    assert redact(once.text).text == once.text
    assert once.text.count("\n") == remove_invisible(text).count("\n")


@given(st.text(), st.sampled_from(sorted(secret_texts.FORMS)), st.integers(0, 20), st.text())
def test_a_secret_between_blanks_is_found_whatever_stands_around_it(
    before: str, kind: str, seed: int, after: str
) -> None:
    secret = secret_texts.form(kind, seed)
    assert secret not in redact(f"{before} {secret} {after}").text


@pytest.mark.parametrize("seed", range(3))
def test_texts_that_give_a_secret_away_are_sent_without_it(seed: int) -> None:
    """At least 98 of 100 forms, and nothing around them."""
    missed = []
    for name, text in secret_texts.TEXTS.items():
        given, parts = secret_texts.drawn(text, seed)
        sent = redact(f"Before it.\n\n{given}\n\nAfter it.\n").text
        assert sent.startswith("Before it.\n\n")
        assert sent.endswith("\n\nAfter it.\n")
        assert sent.count("\n") == f"Before it.\n\n{given}\n\nAfter it.\n".count("\n")
        assert redact(sent).text == sent
        missed += [name] if secret_texts.leaks(sent, parts) else []
    assert len(missed) <= len(secret_texts.TEXTS) / 50, missed


@pytest.mark.parametrize("password", secret_texts.CHOSEN)
def test_a_password_that_a_person_chose_is_left_out(password: str) -> None:
    """At least 95 of 100 texts, alone and within others."""
    for around in ("{}", "# Notes\n\nSome words before.\n\n{}\n\nAnd after it."):
        texts = {
            text: around.replace("{}", text.replace("{}", password)) for text in secret_texts.GIVEN
        }
        sent = {text: redact(whole).text for text, whole in texts.items()}
        missed = [
            text for text, shown in sent.items() if password[:6] in shown or password[-6:] in shown
        ]
        assert len(missed) <= len(sent) / 20, missed


def test_a_disguised_secret_is_left_out() -> None:
    encoded = secret_texts.encoded(1)
    assert [
        how for how, text, parts in encoded if secret_texts.leaks(redact(text).text, parts)
    ] == []


def test_texts_of_what_json_holds_are_cleaned_where_one_has_a_secret() -> None:
    clean = {"a": ["x", {"b": "y"}], "n": 1.5, "none": None}
    assert without_secrets(clean) is clean
    found = without_secrets({**clean, "path": f"docs/{secret_texts.form('github classic', 1)}.md"})
    assert found == {**clean, "path": "docs/[redacted: GitHub token].md"}


def test_the_detector_is_imported_when_something_is_redacted() -> None:
    code = "import sys, judgekit.redaction.redact; print('detect_secrets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# What leaves the machine

KINDS = ("aws", "anthropic", "github fine-grained", "slack bot", "json web token")
SECRETS = tuple(secret_texts.form(kind, 7) for kind in KINDS)
PANELS: list[PanelModels] = [
    {tier: replace(endpoint, is_pointwise=pointwise) for tier, endpoint in three_models().items()}
    for pointwise in (False, True)
]


def sent(given: File) -> File:
    subject, _ = outgoing.redact_document(document((given,), "task"))
    return subject.files[0]


def leaked(text: str, least: int = 12) -> list[str]:
    windows = ((secret, at) for secret in SECRETS for at in range(len(secret) - least + 1))
    return [secret[at : at + least] for secret, at in windows if secret[at : at + least] in text]


class Listening(NothingOpen):
    """A gateway that keeps its requests and gives no useful answer."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        self.heard += [message.content for message in request.messages]
        return reply("no", endpoint.model, logprobs=({"3": -0.1, "no": -1.0},))

    def has_no_secret(self) -> bool:
        """Whether its requests say that a secret was left out, and contain none."""
        return (
            bool(self.heard)
            and "[redacted: " in str(self.heard)
            and not leaked("\n".join(self.heard))
        )


def compared(subject: ComparisonInput, panel: PanelModels) -> None:
    for kind, rubric in ((PairJudge, "answer-preference"), (RankingJudge, "kls")):
        gateway = Listening()
        own = kind(gateway, judge_settings(panel, loader.find_rubric(rubric)))
        asyncio.run(own.judge(subject))
        assert gateway.has_no_secret()
        assert leaked(str([own.build_prompts(tier, subject) for tier in TIERS])) == []


@pytest.mark.parametrize("panel", PANELS, ids=["whole", "pointwise"])
def test_documents_and_texts_are_sent_without_secrets(panel: PanelModels) -> None:
    gateway = Listening()
    task = TaskDescription(
        f"It documents {SECRETS[1]}.", f"It must not say {SECRETS[2]}.", f"Say {SECRETS[0]}."
    )
    # The quick tier sees 4,000 characters: the cut goes through the secret.
    files = (
        file("a.md", f"{SECRETS[0]}\n" + "word " * 790 + SECRETS[3] + " end"),
        file("b.md", SECRETS[4]),
    )
    own = document_judge(gateway, panel)
    subject = document(files, "a", task=task)
    verdict = asyncio.run(own.judge(subject))
    assert gateway.has_no_secret()
    assert verdict.redacted == verdict.record()["redacted"] == 6
    assert [subject.sha256 for subject in verdict.subjects] == [each.sha256 for each in files]
    shown = str([prompt for tier in TIERS for prompt in own.build_prompts(tier, subject)])
    assert leaked(shown) == []
    assert "[redacted: AWS key]" in shown
    texts = (file("a.md", f"One {SECRETS[1]}"), file("b.md", f"Two {SECRETS[2]}"))
    compared(comparison_input(f"Explain {SECRETS[0]}", texts), panel)


@pytest.mark.parametrize("panel", PANELS, ids=["whole", "pointwise"])
def test_candidates_are_sent_without_secrets(panel: PanelModels) -> None:
    for at in range(0, 320, 40):
        gateway = Listening()
        text = "a" * at + f" {SECRETS[2]} b"
        shown = candidate(
            "a", f"Key {SECRETS[0]}", category="DECISION", tags=("x", SECRETS[1]), text=text
        )
        wanted = query(f"{'q' * (at + 380)} {SECRETS[3]} here", (f"user: {'t' * at} {SECRETS[4]}",))
        own = candidate_judge(gateway, panel, mode="lenient")
        asyncio.run(own.select(wanted, [shown, replace(shown, id="b", text=SECRETS[4])]))
        assert gateway.has_no_secret(), at


@pytest.mark.parametrize("panel", PANELS, ids=["whole", "pointwise"])
def test_models_are_shown_paths_without_secrets(panel: PanelModels) -> None:
    for folder in ("docs/", "docs/k"):
        paths = (f"{folder}{SECRETS[2]}.md", f"docs/{SECRETS[3]}/b.md")
        files, gateway = (file(paths[0], "One."), file(paths[1], "Two.")), Listening()
        verdict = asyncio.run(document_judge(gateway, panel).judge(document(files, "T-1")))
        assert gateway.has_no_secret()
        assert verdict.redacted == 2
        assert tuple(subject.path for subject in verdict.subjects) == paths
        compared(comparison_input(f"Explain {SECRETS[0]}", files), panel)
    named = replace(file(f"{SECRETS[2]}.md"), alias="text")
    assert outgoing.redact_file(named) == (named, 1)
    assert (
        outgoing.redact_file(replace(named, alias=SECRETS[3]))[0].alias == "[redacted: Slack token]"
    )


def test_what_is_known_of_a_files_length_goes_by_what_is_shown() -> None:
    whole = sent(file("a.md", f"{SECRETS[1]} is all"))
    assert len(whole.text) == whole.total_chars
    assert whole.sha256 == file("a.md", f"{SECRETS[1]} is all").sha256
    subject = document(
        (file(f"{SECRETS[0]}.md", SECRETS[3]), file("b.md", "none")),
        "a",
        task=TaskDescription(SECRETS[2]),
    )
    clean, count = outgoing.redact_document(subject)
    assert (clean.sha256, count) == (subject.sha256, 3)
    assert outgoing.redact_document(clean) == (clean, 1), "its path stays as it is"
    cut = sent(file("a.md", f"{SECRETS[1]} is the beg", total=5_000))
    assert cut.text == "[redacted: Anthropic key] is the "
    assert cut.total_chars > len(cut.text)


def test_a_file_that_was_cut_within_a_secret_shows_no_half_of_it() -> None:
    for kept in range(4, 40, 5):
        text = (
            ("word " * (CONTEXT_CHARS // 5))[: CONTEXT_CHARS - kept - 1] + " " + SECRETS[1][:kept]
        )
        assert SECRETS[1][:kept] not in sent(file("a.md", text, total=2 * CONTEXT_CHARS)).text
    unbroken = sent(file("a.md", "x" * CONTEXT_CHARS, total=2 * CONTEXT_CHARS))
    assert 0 < len(unbroken.text) < CONTEXT_CHARS


@pytest.mark.parametrize("value", ["x1" + "a" * 500 + "$b", "a" + "|" * 500 + "!"])
def test_a_long_word_behind_a_name_is_weighed_in_linear_time(value: str) -> None:
    """With a pattern that takes exponential time, this would never end."""
    assert redact(f"pw = {value}").text.startswith("pw = ")
