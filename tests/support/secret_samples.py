"""Made-up secrets of every kind, put together when a test runs: none stands in the repository."""

from __future__ import annotations

import base64
import random
import string
from typing import TYPE_CHECKING

import secret_texts
from secret_texts import ALNUM

if TYPE_CHECKING:
    from collections.abc import Mapping

LOWER = string.ascii_lowercase + string.digits


def forms(seed: int) -> Mapping[str, str]:
    """Return a secret of each kind that is known by its form."""
    return {kind: secret_texts.drawn(form, seed)[0] for kind, form in secret_texts.FORMS.items()}


def generated(seed: int) -> Mapping[str, str]:
    """Return a value of each usual generator: what it draws from, and how many."""
    draw = random.Random(seed)
    punctuation = "".join(sorted(set(string.punctuation) - set("\"'`\\")))

    def of(alphabet: str, count: int) -> str:
        return "".join(draw.choices(alphabet, k=count))

    def with_symbols(symbols: str, count: int) -> str:
        # Such generators see to it that each class is there.
        value = [
            of(each, 1) for each in (string.ascii_lowercase, string.ascii_uppercase, string.digits, symbols)
        ]
        value += of(ALNUM + symbols, count - len(value))
        draw.shuffle(value)
        return "".join(value)

    django = of(LOWER + "!@#$%^&*(-_=+)", 50)
    return {
        "django": django,
        "django insecure": f"django-insecure-{django}",
        "openssl base64": base64.b64encode(draw.randbytes(32)).decode(),
        "openssl hex": draw.randbytes(24).hex(),
        "pwgen": with_symbols(punctuation, 20),
        "1password": with_symbols("!@.-_*", 20),
        "keepass": with_symbols("!#$%&*+-=?@^_|~", 20),
        "browser": "-".join(with_symbols(LOWER, 6) for _ in range(3)),
        "secrets": base64.urlsafe_b64encode(draw.randbytes(32)).rstrip(b"=").decode(),
    }


def private_key(seed: int, name: str = "RSA PRIVATE KEY", lines: int = 14) -> str:
    """Return a block like that of a private key, without a line break at its end."""
    draw = random.Random(seed)
    body = ["".join(draw.choices(ALNUM + "+/", k=64)) for _ in range(lines)]
    return "\n".join([f"-----BEGIN {name}-----", *body, "aB3" * 4 + "==", f"-----END {name}-----"])


def given(seed: int) -> Mapping[str, tuple[str, str]]:
    """Return texts that give a secret in other ways, each with the secret in it."""
    draw = random.Random(seed)
    word = "".join(draw.choices(string.ascii_lowercase, k=9))
    mixed = "".join(draw.choices(ALNUM, k=12)) + "7x"
    strange = "".join(draw.choices(ALNUM + "!#%^&*", k=14)) + "!"
    long = "".join(draw.choices(ALNUM, k=39)) + "4k"
    return {
        "environment": (f"export DB_PASSWORD={word}\n", word),
        "environment token": (f"SERVICE_TOKEN={long}\n", long),
        "yaml": (f"db:\n  password: {word}\n  host: db1\n", word),
        "yaml strange": (f"  password: {strange}\n", strange),
        "toml": (f'api_key = "{mixed}"\n', mixed),
        "json": (f'{{"user": "ann", "password": "{word}"}}', word),
        "json key": (f'{{"client_secret": "{long}"}}', long),
        "python": (f"connect(host, password='{word}')", word),
        "python dictionary": (f'settings["api_key"] = "{long}"', long),
        "go": (f'password := "{strange}"', strange),
        "ruby": (f":password => '{mixed}'", mixed),
        "aws secret": (f"aws_secret_access_key = {long[:40]}", long[:40]),
        "odbc": (f"Server=db1;Uid=ann;Pwd={word};Encrypt=yes", word),
        "dsn": (f"postgresql://ann:{mixed}@db1:5432/app", mixed),
        "dsn strange": (f"amqp://ann:{strange.replace('#', '!')}@mq/", strange.replace("#", "!")),
        "redis": (f"redis://:{word}@cache:6379/0", word),
        "bearer": (f'curl -H "Authorization: Bearer {long}" https://api.example', long),
        "basic": (f"Authorization: Basic {long}=", long),
        "curl": (f"curl -u ann:{mixed} https://api.example", mixed),
        "xml": (f"<password>{word}</password>", word),
        "npmrc": (f"//registry.example/:_authToken={long}", long),
        "azure": (f"AccountName=a;AccountKey={long * 2}==;", long * 2),
        "signed address": (f"https://blob.example/a?sp=r&sig={long}%3D", long),
        "markdown": (f"- **Password:** `{mixed}`", mixed),
        "in JSON": ('{"private_key": "' + private_key(seed).replace("\n", "\\n") + '\\n"}', "aB3aB3"),
    }
