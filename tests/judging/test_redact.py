"""Secrets are left out of what is sent; everything else stays as it is."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import secret_samples
import secret_texts
from hypothesis import given
from hypothesis import strategies as st

from judgekit.judging.disguises import folded, plain, skeleton
from judgekit.judging.fence import broken_up
from judgekit.judging.redact import passage, redact, without_secrets
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = sorted(secret_samples.forms(0))
GIVEN = sorted(secret_samples.given(0))
SEEDS = range(5)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("around", ["{}", "use {} here", '"{}",', "key={}\nnext", "(`{}`)", "<a>{}</a>"])
def test_a_secret_that_is_known_by_its_form_is_left_out_whole(kind: str, around: str) -> None:
    for seed in SEEDS:
        secret = secret_samples.forms(seed)[kind]
        redacted = redact(around.format(secret))
        assert redacted.secrets == 1
        assert "[redacted: " in redacted.text
        for part in (secret, secret[-12:]):
            assert part not in redacted.text
        before, after = around.split("{}")
        assert redacted.text.startswith(before.removesuffix("key="))
        assert redacted.text.endswith(after)


@pytest.mark.parametrize("way", GIVEN)
def test_a_secret_that_is_given_by_name_or_place_is_left_out(way: str) -> None:
    for seed in SEEDS:
        text, secret = secret_samples.given(seed)[way]
        redacted = redact(f"Before it.\n{text}\nAfter it.\n")
        assert secret not in redacted.text
        assert redacted.secrets == 1
        assert redacted.text.startswith("Before it.\n")
        assert redacted.text.endswith("\nAfter it.\n")


def test_the_name_of_a_value_stays() -> None:
    assert redact('password = "correcthorse"').text == 'password = "[redacted: password]"'
    assert redact("postgres://ann:correcthorse@db/app").text == "postgres://ann:[redacted: password]@db/app"
    assert redact("DB_PASSWORD=correcthorse").text == "DB_PASSWORD=[redacted: password]"


@pytest.mark.parametrize(
    "name",
    ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"],
)
def test_a_private_key_is_left_out_whole_and_lines_keep_their_numbers(name: str) -> None:
    text = f"one\n{secret_samples.private_key(3, name)}\nlast"
    redacted = redact(text)
    assert redacted.text.splitlines()[:2] == ["one", "[redacted: private key]"]
    assert redacted.text.count("\n") == text.count("\n")
    assert redacted.text.endswith("\nlast")
    assert redacted.secrets == 1


def test_a_key_that_was_never_closed_is_left_out_as_far_as_it_goes() -> None:
    cut = secret_samples.private_key(3)[:500]
    redacted = redact(f"{cut}\n\nAnd then prose goes on, as it does.")
    assert redacted.text.endswith("And then prose goes on, as it does.")
    assert cut[100:130] not in redacted.text
    assert cut[-15:] not in redacted.text


def test_prose_in_the_place_of_a_key_is_not_hidden_from_the_judge() -> None:
    prose = "Run this as root without any further question asked of anybody who might object"
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{prose}\n-----END RSA PRIVATE KEY-----"
    assert prose in redact(text).text


def test_a_secret_hidden_by_what_nobody_sees_is_found() -> None:
    secret = secret_samples.forms(1)["github classic"]
    assert redact("\u200b".join(secret)).text == "[redacted: GitHub token]"


def test_several_secrets_are_counted() -> None:
    forms = secret_samples.forms(2)
    text = f"{forms['aws']}\n{forms['stripe']} {forms['npm']}\npassword: 'correcthorse'"
    assert redact(text).secrets == 4


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


@pytest.mark.parametrize("around", SURROUNDINGS.values(), ids=SURROUNDINGS)
@pytest.mark.parametrize("generator", sorted(secret_samples.generated(0)))
def test_what_a_generator_made_is_left_out(generator: str, around: str) -> None:
    """At least 99 of 100; without quotes only what holds nothing that would end it there."""
    values = [secret_samples.generated(seed)[generator] for seed in range(300)]
    if "'" not in around and '"' not in around.replace('"password"', ""):
        values = [value for value in values if not BRACKETS & set(value)]
    missed = [value for value in values if value in redact(around.format(value)).text]
    assert len(missed) <= len(values) / 100, missed[:5]


@pytest.mark.parametrize(
    "text",
    [
        "password: Tr0ub4dor&3",
        'password = "correct horse battery staple"',
        '"passphrase": "Blue tiger 42 lake"',
        "passwd=letmein",
        "sshpass -p 'swordfish' ssh host",
        "mysql -u root -pswordfish shop",
        "mysqldump --all -u root -p'sword7fish'",
        "?user=ann&password=a1b2c3&next=x",
    ],
)
def test_passwords_as_people_write_them_are_left_out(text: str) -> None:
    assert redact(text).secrets == 1


@pytest.mark.parametrize(
    "text",
    [
        "The password must have twelve characters; a token expires after an hour.",
        "Password: required",
        "password: str",
        "password: {type: string, format: password}",
        'password = os.environ["DB_PASSWORD"]',
        "password = getpass.getpass()",
        "password=password, token=token",
        "password: string|null",
        "secret = FIRST|SECOND",
        'password_help = "at least twelve characters with a digit"',
        'password = "The password to use here"',
        'password: "must have 8 characters"',
        'token = "%(token1)s&User=%s"',
        "f(\n    password=given,\n)",
        "mysql -u root -p shop",
        "mysql --port=3306 -h host",
        "secret: ${DB_Secret_1}",
        "self.token = self._next_token(text)",
        "token = settings.api_token",
        "api_key: ${API_KEY}",
        "api_key: <your key>",
        'api_key = "your-api-key-goes-here"',
        'password = "********"',
        "PASSWORD=$DB_PASSWORD",
        'client_secret: "{{ vault.client_secret }}"',
        "max_tokens: 2048, tokens=12",
        'secret = "config/secret"',
        "secret: kubernetes.io/service-account-token",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "id: 123e4567-e89b-12d3-a456-426614174000",
        '"integrity": "sha512-' + "a1B2c3D4" * 10 + '=="',
        "![logo](data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 20 + ")",
        "    --hash=sha256:" + "0123456789abcdef" * 4,
        "http://localhost:8080/a@b",
        "git@example.org:team/project.git",
        "ssh://git@example.org:22/a",
        "The task-force's disk-image and risk-free sk-learn",
        "bearer tokens are sent in a header",
        "Authorization: Bearer <token>",
        "the prompt_sha256 and the label-secret file",
        "judgekit search 'rate limits' --judge",
        "127.0.0.1:8080, 2026-11-22T04:27:02Z, v1.2.3-rc.1+build.5",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
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


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("at", [5, 9, 14])
def test_a_passage_shows_no_half_of_a_secret(kind: str, at: int) -> None:
    secret = secret_samples.forms(4)[kind]
    whole = f"The key of the old service\nis {secret} and it still works."
    flat = " ".join(whole.split())
    place = flat.index(secret)
    front = passage(whole, f"{flat[: place + at]}…")
    back = passage(whole, f"…{flat[place + len(secret) - at :]}")
    assert front == ("The key of the old service is [redacted: " + front.text[41:], 1)
    assert front.text.endswith("]…")
    assert back.text.startswith("…[redacted: ")
    assert back.text.endswith("] and it still works.")


def test_a_passage_without_a_secret_stays() -> None:
    assert passage("The old\nservice has a key in its vault.", "…service has a key") == (
        "…service has a key",
        0,
    )


HOSTILE = {
    "tokens": "sk-" * 30_000,
    "web tokens": "eyJ" * 30_000,
    "dots": "eyJaaaaaaaa." * 10_000,
    "keys": "-----BEGIN PRIVATE KEY-----" * 4_000,
    "lines of keys": "-----BEGIN PRIVATE KEY-----" + "\n" * 50_000 + "A" * 40_000,
    "names": "password" * 12_000,
    "operators": "password = " * 9_000,
    "quotes": 'password="' * 9_000,
    "addresses": "://a:" * 20_000,
    "addresses without end": "://" + "a:" * 45_000,
    "headers": "Authorization: Bearer " * 4_500,
    "digits": "1" * 90_000,
    "letters": "a" * 90_000,
    "slack": "xoxb-" + "1-" * 45_000,
    "slacks": "xoxb-1-" * 13_000,
    "aws": "aws key " * 11_000,
    "users": " -u a" * 18_000,
    "blanks": " " * 90_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_takes_long(text: str) -> None:
    """Time grows with the length and not with its square: twice as much may take thrice as long, not four."""
    start = time.process_time()
    redact(text)
    assert time.process_time() - start < 3


def test_the_detector_is_imported_when_something_is_redacted() -> None:
    code = "import sys, judgekit.judging.redact; print('detect_secrets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


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


def test_a_private_key_is_left_out_whatever_its_lines_begin_with() -> None:
    for how, block in secret_texts.key_blocks():
        redacted = redact(f"Before it.\n\n{block}\n\nAfter it.\n")
        assert not secret_texts.leaks(redacted.text, secret_texts.key_parts()), how
        assert redacted.text.startswith("Before it.\n"), how
        assert redacted.text.endswith("After it.\n"), how
        assert redacted.secrets >= 1, how


def test_a_header_without_a_key_is_no_secret() -> None:
    for text in ("-----BEGIN RSA PRIVATE KEY-----", 'HEADER = "-----BEGIN PRIVATE KEY-----"\nx = 1\n'):
        assert redact(text) == (text, 0)


def test_prose_between_the_lines_of_a_key_stays() -> None:
    lines = secret_samples.private_key(3).split("\n")
    prose = "and this is why nobody may approve it"
    redacted = redact("\n".join([*lines[:4], prose, *lines[4:]]))
    assert prose in redacted.text
    assert not any(line in redacted.text for line in lines[1:-1])


def test_a_disguised_secret_is_left_out() -> None:
    missed = [
        how for how, text, parts in secret_texts.encoded(1) if secret_texts.leaks(redact(text).text, parts)
    ]
    assert missed == []


def test_what_imitates_nothing_is_sent_as_it_is() -> None:
    text = (
        "Пароль нужен. \uff21\uff22 caf\u00e9 \u201cquoted\u201d \u2013 na\u00efve \U0001d400\u0301, e\u0301"
    )
    assert redact(text) == (text, 0)


def test_texts_of_what_json_holds_are_cleaned_where_one_has_a_secret() -> None:
    secret = secret_samples.forms(1)["github classic"]
    clean = {"a": ["x", {"b": "y"}], "n": 1.5, "none": None}
    assert without_secrets(clean) is clean
    found = without_secrets({**clean, "path": f"docs/{secret}.md"})
    assert found == {**clean, "path": "docs/[redacted: GitHub token].md"}


_SCHEMES: dict[str, Callable[[int], str]] = {
    "accents": lambda size: "\u00e9 " + "a" * size,
    "marks": lambda size: "a" + "\u0301" * size,
    "styled": lambda size: "\U0001d41a" * size,
    "cyrillic": lambda size: "p\u0430ss" * (size // 4),
    "escapes": lambda size: "\\x41" * (size // 4),
    "percent": lambda size: "%41" * (size // 3),
    "entities": lambda size: "&#65;" * (size // 5),
    "literals": lambda size: '"a" + ' * (size // 6),
    "base64": lambda size: base64.b64encode(b"password=" * (size // 12)).decode(),
    "base64 lines": lambda size: "QUFBQUFBQUFBQUFBQUFB\n" * (size // 21),
    "hex": lambda size: "41" * (size // 2),
    "numbers": lambda size: "65, " * (size // 4),
    "quotes": lambda size: "\"'`" * (size // 3),
    "tables": lambda size: "| password | x |\n" * (size // 17),
    "cells": lambda size: "password," * (size // 9),
    "headers": lambda size: "-----BEGIN PRIVATE KEY-----\n" * (size // 28),
    "header lines": lambda size: "-----BEGIN PRIVATE KEY----- " * (size // 28),
    "words": lambda size: "seed " * (size // 5),
    "users": lambda size: "tool -u ann " * (size // 12),
    "names": lambda size: "password: " * (size // 10),
    "addresses": lambda size: "://a:b" * (size // 6),
    "signs": lambda size: "@" * size,
    "colons": lambda size: ":" * size,
    "slashes": lambda size: "\\" * size,
    "brackets": lambda size: "<|[" * (size // 3),
    "long name": lambda size: "token_" * (size // 6) + " = x",
    "broken": lambda size: "sk-a\n" * (size // 5),
    "kinds": lambda size: "kind: secret\ndata:\n  a: bbbb\n" * (size // 30),
    "dollars": lambda size: "$1$" * (size // 3),
}


def _cpu(function: Callable[[str], object], text: str) -> float:
    def once() -> float:
        start = time.process_time()
        function(text)
        return time.process_time() - start

    return min(once() for _ in range(2))


@pytest.mark.parametrize("scheme", sorted(_SCHEMES))
@pytest.mark.parametrize(
    "function",
    [redact, plain, skeleton, folded, broken_up],
    ids=["redact", "plain", "skeleton", "folded", "marks"],
)
def test_twice_the_text_takes_no_four_times_as_long(function: Callable[[str], object], scheme: str) -> None:
    make: Callable[[int], str] = _SCHEMES[scheme]
    function("password: x")  # what is made ready once
    tries = []
    for _ in range(
        3
    ):  # a busy machine disturbs one try, and not each: a square takes 16 times as long always
        small, large = (_cpu(function, make(size)) for size in (30_000, 120_000))
        tries.append((small, large))
        if large < max(10 * small, 0.3):
            return
    pytest.fail(f"seconds for a text and for four times as much: {tries}")
