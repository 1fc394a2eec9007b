"""Passwords in files of settings: the name decides, whatever the value looks like."""
# ruff: noqa: RUF001 - names of passwords in other languages

from __future__ import annotations

import random
import string

import pytest

from judgekit.redaction.redact import redact

LETTERS = string.ascii_letters
ALNUM = LETTERS + string.digits
PRINTABLE = ALNUM + "".join(sorted(set(string.punctuation) - set("\"'\\`")))
ALPHABETS = {
    "letters": LETTERS,
    "letters and digits": ALNUM,
    "small letters": string.ascii_lowercase,
    "small letters and digits": string.ascii_lowercase + string.digits,
    "capitals and digits": string.ascii_uppercase + string.digits,
    "punctuation": PRINTABLE,
    "base64url": ALNUM + "-_",
    "hexadecimal": "0123456789abcdef",
}
FIELDS = ["DB_PASSWORD", "password", "db.password", "adminPassword", "smtp_password", "PASSWD"]
FORMS = {
    "env": "{}={}",
    "shell": "export {}='{}'",
    "compose": "    environment:\n      {}: {}",
    "list of compose": "    environment:\n      - {}={}",
    "YAML": "{}: {}",
    "JSON": '  "{}": "{}",',
    "XML": "<{0}>{1}</{0}>",
    "INI": "[db]\n{} = {}",
    "TOML": '{} = "{}"',
    "properties": "{}={}",
    "fish": "set -gx {} {}",
}


def leaks(secret: str, sent: str) -> bool:
    """Whether any six characters of a secret in a row are sent."""
    return any(secret[at : at + 6] in sent for at in range(max(1, len(secret) - 5)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_a_generated_password_is_left_out(form: str, alphabet: str) -> None:
    draw = random.Random(f"{form} {alphabet}")
    letters = ALPHABETS[alphabet]
    if form == "XML":  # which escapes these
        letters = "".join(letter for letter in letters if letter not in "<>&")
    sent = []
    for _ in range(50):
        secret = "".join(draw.choices(letters, k=draw.choice((10, 12, 20))))
        line = FORMS[form].format(draw.choice(FIELDS), secret)
        sent.append(leaks(secret, redact(f"x: 1\n{line}\ny: 2").text))
    assert sum(sent) <= 1


@pytest.mark.parametrize("name", ["DB_PASS", "smtp_pass", "JWT_SECRET", "clientSecret"])
@pytest.mark.parametrize("form", ["env", "shell", "JSON", "XML", "TOML", "fish"])
def test_names_of_other_secrets_decide_too(form: str, name: str) -> None:
    draw = random.Random(f"{form} {name}")
    letters = LETTERS
    if "pass" in name.lower():
        letters = "".join(letter for letter in PRINTABLE if letter not in "<>&")
    if form == "env":
        name = name.upper()
    sent = []
    for _ in range(500):
        secret = "".join(draw.choices(letters, k=20))
        sent.append(leaks(secret, redact(f"x: 1\n{FORMS[form].format(name, secret)}\ny: 2").text))
    assert sum(sent) <= 5


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", [*"!@#$%-.{/[(*&~^_+=?", "<"])
def test_the_first_character_does_not_matter(form: str, first: str) -> None:
    if form == "XML" and first in "<&":
        pytest.skip("XML escapes it")
    secret = "kV9mQ2zPw7"
    line = FORMS[form].format("DB_PASSWORD", first + secret)
    assert not leaks(secret, redact(line).text)


@pytest.mark.parametrize(
    "value",
    [
        *("${DB_PASSWORD}", "$DB_PASSWORD", "%MY_PASSWORD%", "{{ vault.password }}", "<%= pw %>"),
        *("<your password>", "<password>", "changeme", "your_password", "********", "xxxxxxxx"),
        *("get_password()", "os.environ['DB_PASSWORD']", "config.password", "settings.DB_PASSWORD"),
        *("str", "string", "String", "Optional[str]", "SecretStr", "varchar(255)", "null", "none"),
        *("vault:secret/data/db#password", "/run/secrets/db_password", "!secret db_password"),
        *("user_password", "hashed_password", "required", "optional", "[redacted]"),
        *("process.env.DB_PASSWORD", "getpass.getpass()", "input('Password: ')", "prompt", "true"),
    ],
)
@pytest.mark.parametrize("form", ["env", "YAML", "INI", "properties"])
def test_what_stands_for_a_password_stays(form: str, value: str) -> None:
    line = FORMS[form].format("password", value)
    assert redact(line).text == line


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (
            '<add name="x" connectionString="Server=s;User Id=sa;Password=kV9#mQ2zP!;" />',
            "kV9#mQ2zP",
        ),
        ("Server=s;Database=d;Pwd=kV9#mQ2zP!;Encrypt=yes", "kV9#mQ2zP"),
        ("set -gx CORP_API_KEY 4fK9sQ2mZx7LpW3vT8bN6yR1cD5hJ0gA", "4fK9sQ2mZx7L"),
        ("setenv DB_PASSWORD kVqmQzPwLs", "kVqmQzPwLs"),
        ('driver.find_element(By.NAME, "password").send_keys("Sommer2024!")', "Sommer2024!"),
        ('page.fill("#password", "Sommer2024!")', "Sommer2024!"),
        ("AUTH PLAIN AGFubgBrVjltUTJ6UHc3TGQ=\n235 ok", "AGFubgBrVjltUTJ6"),
        ("dn: cn=a\nuserPassword:: a1Y5bVEyelB3N0xk\n", "a1Y5bVEyelB3N0xk"),
        ("kubeadm join 10.0.0.1:6443 --token ab12cd.0123456789abcdef", "0123456789abcdef"),
        ("https://eth-mainnet.g.alchemy.com/v2/kV9mQ2zPw7LdXs4TnB8yRc1HgJ6fWa3E", "kV9mQ2zPw7Ld"),
        ("https://mainnet.infura.io/v3/0123456789abcdef0123456789abcdef", "0123456789abcdef"),
        ("token-x: 4fK9sQ2mZx7LpW3vT8bN", "4fK9sQ2mZx7L"),
        ('api_keys = ["4fK9sQ2mZx7LpW3v", "Zx7LpW3vT8bN6yR1"]', "Zx7LpW3vT8bN"),
        (
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301:0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123",
        ),
        ("கடவுச்சொல்: Sommer2024!", "Sommer2024!"),
        ("సంకేతపదం: Sommer2024!", "Sommer2024!"),
        ("پاس ورڈ: Sommer2024!", "Sommer2024!"),
        ("нууц үг: Sommer2024!", "Sommer2024!"),
        ("ពាក្យសម្ងាត់: Sommer2024!", "Sommer2024!"),
        ("cyfrinair: Sommer2024!", "Sommer2024!"),
    ],
)
def test_a_secret_is_found_where_tools_put_it(text: str, secret: str) -> None:
    assert not leaks(secret, redact(text).text)


@pytest.mark.parametrize(
    "text",
    [
        "KEY_QUERY_VALUE = 0x00000004",
        '"Secret"=dword:00000004',
        "pk_live_51H8abcDEFghiJKLmnoPQRstuVWXyz0123456789",
        "user_2NNEqL2nrIRdJ194ndJqAHwEfxC",
        "root:x:0:0:root:/root:/bin/bash",
        "f(\n    password=given,\n)",
        "password = cast(\n    str, value\n)",
        "total_tokens: ReadOnly[NotRequired[int]]",
        "pattern_of_pw = r'[0-9a-f]{64}'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text).text == text
