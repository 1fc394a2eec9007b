"""Made-up secrets of every kind, put together when a test runs: none stands in the repository."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits


def forms(seed: int) -> Mapping[str, str]:
    """Return a secret of each kind that is known by its form."""
    draw = random.Random(seed)

    def of(alphabet: str, count: int) -> str:
        last = draw.choice([char for char in alphabet if char.isalnum()])
        return "".join(draw.choices(alphabet, k=count - 1)) + last

    def encoded(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    token = f"{encoded({'alg': 'HS256'})}.{encoded({'sub': of(LOWER, 8)})}.{of(ALNUM, 43)}"
    return {
        "aws": "AKIA" + of(UPPER, 16),
        "aws temporary": "ASIA" + of(UPPER, 16),
        "anthropic": "sk-ant-" + "api03-" + of(URLSAFE, 93) + "AA",
        "openai project": "sk-" + "proj-" + of(URLSAFE, 120),
        "openai service": "sk-" + "svcacct-" + of(URLSAFE, 60),
        "openai old": "sk-" + of(ALNUM, 20) + "T3BlbkFJ" + of(ALNUM, 20),
        "openrouter": "sk-" + "or-v1-" + of(HEX, 64),
        "deepseek": "sk-" + of(HEX, 32),
        "groq": "gsk_" + of(ALNUM, 52),
        "xai": "xai-" + of(ALNUM, 80),
        "hugging face": "hf_" + of(string.ascii_letters, 34),
        "github classic": "ghp_" + of(ALNUM, 36),
        "github app": "ghs_" + of(ALNUM, 36),
        "github fine-grained": "github_pat_" + of(ALNUM, 22) + "_" + of(ALNUM, 59),
        "gitlab": "glpat-" + of(URLSAFE, 20),
        "google": "AIza" + of(URLSAFE, 35),
        "google client": "GOCSPX-" + of(URLSAFE, 28),
        "slack bot": f"xoxb-{of(string.digits, 12)}-{of(string.digits, 12)}-{of(ALNUM, 24)}",
        "slack app": f"xapp-1-A{of(UPPER, 10)}-{of(string.digits, 13)}-{of(HEX, 64)}",
        "slack webhook": f"https://hooks.slack.com/services/T{of(UPPER, 8)}/B{of(UPPER, 8)}/{of(ALNUM, 24)}",
        "stripe": "sk_" + "live_" + of(ALNUM, 24),
        "stripe restricted": "rk_" + "live_" + of(ALNUM, 99),
        "stripe webhook": "whsec_" + of(ALNUM, 32),
        "npm": "npm_" + of(ALNUM, 36),
        "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + of(URLSAFE, 150),
        "sendgrid": f"SG.{of(URLSAFE, 22)}.{of(URLSAFE, 43)}",
        "twilio": "SK" + of(HEX, 32),
        "mailchimp": of(HEX, 32) + "-us12",
        "telegram": of(string.digits[1:], 9) + ":" + of(URLSAFE, 35),
        "discord": f"M{of(ALNUM, 23)}.{of(ALNUM, 6)}.{of(URLSAFE, 27)}",
        "docker": "dckr_pat_" + of(URLSAFE, 27),
        "digitalocean": "dop_v1_" + of(HEX, 64),
        "vault": "hvs." + of(URLSAFE, 90),
        "databricks": "dapi" + of(HEX, 32),
        "shopify": "shpat_" + of(HEX, 32),
        "grafana": f"glsa_{of(ALNUM, 32)}_{of(HEX, 8)}",
        "new relic": "NRAK-" + of(UPPER, 27),
        "linear": "lin_api_" + of(ALNUM, 40),
        "notion": "ntn_" + of(ALNUM, 46),
        "supabase": "sbp_" + of(HEX, 40),
        "mailgun": "key-" + of(HEX, 32),
        "atlassian": "ATATT3" + of(URLSAFE, 180),
        "artifactory": "AKCp" + of(ALNUM, 69),
        "terraform": f"{of(ALNUM, 14)}.atlasv1.{of(ALNUM, 67)}",
        "age": "AGE-SECRET-KEY-1" + of(UPPER, 58),
        "json web token": token,
    }


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
