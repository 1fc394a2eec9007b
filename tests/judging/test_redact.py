"""Secrets are left out of what is sent; everything else stays as it is."""

from __future__ import annotations

import subprocess
import sys
import time
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


def test_the_name_of_a_value_stays() -> None:
    assert redact('password = "correcthorse"').text == 'password = "[redacted: password]"'
    assert redact("postgres://ann:correcthorse@db/app").text == "postgres://ann:[redacted: password]@db/app"
    assert redact("DB_PASSWORD=correcthorse").text == "DB_PASSWORD=[redacted: password]"


def test_a_private_key_is_left_out_whole_and_lines_keep_their_numbers() -> None:
    for name in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "):
        text = f"one\n{secret_samples.private_key(3, f'{name}PRIVATE KEY')}\nlast"
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
    lines = secret_samples.private_key(3).split("\n")
    redacted = redact("\n".join([*lines[:4], prose, *lines[4:]]))
    assert prose in redacted.text
    assert not any(line in redacted.text for line in lines[1:-1])


def test_a_private_key_is_left_out_whatever_its_lines_begin_with() -> None:
    for how, block in secret_texts.key_blocks():
        redacted = redact(f"Before it.\n\n{block}\n\nAfter it.\n")
        assert not secret_texts.leaks(redacted.text, secret_texts.KEY_PARTS), how
        assert redacted.text.startswith("Before it.\n"), how
        assert redacted.text.endswith("After it.\n"), how
        assert redacted.secrets >= 1, how


def test_a_secret_hidden_by_what_nobody_sees_is_found() -> None:
    assert redact("\u200b".join(secret_samples.forms(1)["github classic"])).text == "[redacted: GitHub token]"


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


@pytest.mark.parametrize("generator", sorted(secret_samples.generated(0)))
def test_what_a_generator_made_is_left_out(generator: str) -> None:
    """At least 99 of 100; without quotes only what holds nothing that would end it there."""
    drawn = [secret_samples.generated(seed)[generator] for seed in range(100)]
    for kind, around in SURROUNDINGS.items():
        bare = kind in ("yaml", "environment", "environment token")
        values = [value for value in drawn if not (bare and BRACKETS & set(value))]
        missed = [value for value in values if value in redact(around.format(value)).text]
        assert len(missed) <= len(values) / 100, (kind, missed[:5])


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
        "-----BEGIN RSA PRIVATE KEY-----",
        'HEADER = "-----BEGIN PRIVATE KEY-----"\nx = 1\n',
        # Imitates nothing
        "Пароль нужен. \uff21\uff22 caf\u00e9 \u201cquoted\u201d \u2013 na\u00efve \U0001d400\u0301, e\u0301",
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


PIECES = (
    *(
        "\U0001d41a",
        "p\u0430ss",
        "\\x41",
        "%41",
        "&#65;",
        '"a" + ',
        "QUFBQUFBQUFBQUFBQUFB\n",
        "41",
        "65, ",
        "$1$",
    ),
    *(
        "\"'`",
        "| password | x |\n",
        "password,",
        "-----BEGIN PRIVATE KEY-----",
        "seed ",
        "tool -u ann ",
        "xoxb-1-",
    ),
    *(
        "password: ",
        "password = ",
        'password="',
        "password",
        "://a:b",
        "://a:",
        "@",
        ":",
        "\\",
        "<|[",
        "1",
        "aws key ",
    ),
    *(
        "sk-a\n",
        "sk-",
        "kind: secret\ndata:\n  a: bbbb\n",
        "eyJ",
        "eyJaaaaaaaa.",
        "a",
        " ",
        " -u a",
        "cGFzc3dvcmQ9",
    ),
    *("-----BEGIN PRIVATE KEY-----\n", "Authorization: Bearer "),
)
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
