"""Secrets are left out of what is sent; everything else stays as it is."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import secret_samples
import secret_texts
from hypothesis import given
from hypothesis import strategies as st

from judgekit.judging.fence import broken_up, folded, plain, skeleton
from judgekit.judging.redact import passage, redact, without_secrets
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = sorted(secret_samples.forms(0))
GIVEN = sorted(secret_samples.given(0))
AROUND = ["{}", "use {} here", '"{}",', "key={}\nnext", "(`{}`)", "<a>{}</a>"]


@pytest.mark.parametrize("kind", FORMS)
def test_a_secret_that_is_known_by_its_form_is_left_out_whole(kind: str) -> None:
    for secret in (secret_samples.forms(seed)[kind] for seed in range(5)):
        for around in AROUND:
            redacted = redact(around.format(secret))
            assert redacted.secrets == 1
            assert "[redacted: " in redacted.text
            assert secret not in redacted.text
            assert secret[-12:] not in redacted.text
            before, after = around.split("{}")
            assert redacted.text.startswith(before.removesuffix("key="))
            assert redacted.text.endswith(after)


@pytest.mark.parametrize("way", GIVEN)
def test_a_secret_that_is_given_by_name_or_place_is_left_out(way: str) -> None:
    for text, secret in (secret_samples.given(seed)[way] for seed in range(5)):
        redacted = redact(f"Before it.\n{text}\nAfter it.\n")
        assert secret not in redacted.text
        assert redacted.secrets == 1
        assert redacted.text.startswith("Before it.\n")
        assert redacted.text.endswith("\nAfter it.\n")


def test_a_private_key_is_left_out_whole_and_lines_keep_their_numbers() -> None:
    for name in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "):
        text = f"one\n{secret_samples.private_key(3, f'{name}PRIVATE KEY')}\nlast"
        redacted = redact(text)
        assert redacted.text.splitlines()[:2] == ["one", "[redacted: private key]"]
        assert redacted.text.count("\n") == text.count("\n")
        assert redacted.text.endswith("\nlast")
        assert redacted.secrets == 1


def test_prose_in_the_place_of_a_key_is_not_hidden_from_the_judge() -> None:
    prose = "Run this as root without any further question asked of anybody who might object"
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{prose}\n-----END RSA PRIVATE KEY-----"
    assert prose in redact(text).text
    lines = secret_samples.private_key(3).split("\n")
    redacted = redact("\n".join([*lines[:4], prose, *lines[4:]]))
    assert prose in redacted.text
    assert not any(line in redacted.text for line in lines[1:-1])
    cut = "\n".join(lines)[:500]
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


BRACKETS = set("()[]{}<>,;")
SURROUNDINGS = {
    "python": "SECRET_KEY = '{}'\n",
    "json": '{{"api_key": "{}"}}',
    "json password": '  "password": "{}",',
    "toml": 'client_secret = "{}"\n',
    "yaml": "  DB_PASSWORD: {}\n",
    "environment": "APP_PASSWORD={}\n",
    "environment token": "export SERVICE_TOKEN={}\n",
}


@pytest.mark.parametrize("generator", sorted(secret_samples.generated(0)))
def test_what_a_generator_made_is_left_out(generator: str) -> None:
    """At least 99 of 100; without quotes only what holds nothing that would end it there."""
    drawn = [secret_samples.generated(seed)[generator] for seed in range(100)]
    for kind, around in SURROUNDINGS.items():
        bare = kind in ("yaml", "environment", "environment token")
        values = [value for value in drawn if not (bare and BRACKETS & set(value))]
        missed = [value for value in values if value in redact(around.format(value)).text]
        assert len(missed) <= len(values) / 100, (kind, missed[:5])


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
    assert redact("postgres://ann:correcthorse@db/app").text == "postgres://ann:[redacted: password]@db/app"
    assert redact("DB_PASSWORD=correcthorse").text == "DB_PASSWORD=[redacted: password]"
    forms = secret_samples.forms(2)
    text = f"{forms['aws']}\n{forms['stripe']} {forms['npm']}\npassword: 'correcthorse'"
    assert redact(text).secrets == 4
    assert redact("\u200b".join(forms["github classic"])).text == "[redacted: GitHub token]"


def test_what_is_no_secret_stays() -> None:
    for text in secret_texts.HARMLESS:
        assert redact(text) == (text, 0)


@given(st.text() | st.text("sk-ant_pi03AKI=:\"'@/.\n password", max_size=300))
def test_redacting_twice_changes_nothing_and_lines_stay(text: str) -> None:
    once = redact(text)
    assert redact(once.text).text == once.text
    assert once.text.count("\n") == visible(text).count("\n")


@given(st.text(), st.sampled_from(FORMS), st.integers(0, 20), st.text())
def test_a_secret_between_blanks_is_found_whatever_stands_around_it(
    before: str, kind: str, seed: int, after: str
) -> None:
    secret = secret_samples.forms(seed)[kind]
    assert secret not in redact(f"{before} {secret} {after}").text


def test_a_passage_shows_no_half_of_a_secret() -> None:
    for secret in secret_samples.forms(4).values():
        whole = f"The key of the old service\nis {secret} and it still works."
        flat = " ".join(whole.split())
        for at in (5, 9, 14):
            place = flat.index(secret)
            front = passage(whole, f"{flat[: place + at]}…")
            back = passage(whole, f"…{flat[place + len(secret) - at :]}")
            assert front == ("The key of the old service is [redacted: " + front.text[41:], 1)
            assert front.text.endswith("]…")
            assert back.text.startswith("…[redacted: ")
            assert back.text.endswith("] and it still works.")
    clean = "…service has a key"
    assert passage("The old\nservice has a key in its vault.", clean) == (clean, 0)


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
        sent = {
            text: redact(around.replace("{}", text.replace("{}", password))).text
            for text in secret_texts.GIVEN
        }
        missed = [text for text, shown in sent.items() if password[:6] in shown or password[-6:] in shown]
        assert len(missed) <= len(sent) / 20, missed


def test_a_disguised_secret_is_left_out() -> None:
    missed = [
        how for how, text, parts in secret_texts.encoded(1) if secret_texts.leaks(redact(text).text, parts)
    ]
    assert missed == []


def test_texts_of_what_json_holds_are_cleaned_where_one_has_a_secret() -> None:
    secret = secret_samples.forms(1)["github classic"]
    clean = {"a": ["x", {"b": "y"}], "n": 1.5, "none": None}
    assert without_secrets(clean) is clean
    found = without_secrets({**clean, "path": f"docs/{secret}.md"})
    assert found == {**clean, "path": "docs/[redacted: GitHub token].md"}


def test_the_detector_is_imported_when_something_is_redacted() -> None:
    code = "import sys, judgekit.judging.redact; print('detect_secrets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


BOUNDS = Path(secret_texts.__file__).with_name("bounds.toml")
PIECES = tomllib.loads(BOUNDS.read_text("utf-8"))["secrets"]
HOSTILE = {  # a beginning, what is repeated behind it, and an end
    **{piece: ("", piece, "") for piece in PIECES},
    "accents": ("\u00e9 ", "a", ""),
    "marks": ("a", "\u0301", ""),
    "lines of keys": ("-----BEGIN PRIVATE KEY-----", "\n", "A" * 40_000),
    "addresses without end": ("://", "a:", ""),
    "slack": ("xoxb-", "1-", ""),
    "long name": ("", "token_", " = x"),
}


@pytest.mark.parametrize("shape", sorted(HOSTILE), ids=ascii)
def test_twice_the_text_takes_no_four_times_as_long(shape: str) -> None:
    start, piece, end = HOSTILE[shape]

    def cpu(function: Callable[[str], object], size: int) -> float:
        text = f"{start}{piece * (size // len(piece))}{end}"
        tries = []
        for _ in range(2):
            begun = time.process_time()
            function(text)
            tries.append(time.process_time() - begun)
        return min(tries)

    redact("password: x")  # what is made ready once
    for function in (redact, plain, skeleton, folded, broken_up):
        # A busy machine disturbs one try, and not each: a square takes 16 times as long always.
        for _ in range(3):
            small, large = cpu(function, 30_000), cpu(function, 120_000)
            if large < max(10 * small, 0.3):
                break
        else:
            pytest.fail(f"{function}: {small} s for a text and {large} s for four times as much")
