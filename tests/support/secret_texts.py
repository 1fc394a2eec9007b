"""Texts that give away a secret: `«…»` must not be sent, and is drawn anew for each seed.

The texts are in `secret_texts.toml`. `«w9»` is a word of nine letters, `m` letters and digits, `s` with
symbols too, `a` letters and digits of a token, `h` hexadecimal, `b` base64, `u` upper case and digits, `d`
digits, `t` base32, `x` letters, digits, `-` and `_`, `l` letters; `«=…»` is that very text. `encoded` gives
some in ways in which texts are written otherwise.
"""

from __future__ import annotations

import base64
import html
import json
import random
import re
import string
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALNUM = string.ascii_letters + string.digits
_ALPHABETS = {
    "w": string.ascii_lowercase,
    "l": string.ascii_letters,
    "m": ALNUM,
    "a": ALNUM,
    "d": string.digits,
    "s": ALNUM + "!#%*+=?@^",
    "h": "0123456789abcdef",
    "b": ALNUM + "+/",
    "x": ALNUM + "-_",
    "u": string.ascii_uppercase + string.digits,
    "t": string.ascii_uppercase + "234567",
}
_SPEC = re.compile("«(=[^»]+|[a-z]\\d+)»")
_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FORMS: Mapping[str, str] = _READ["forms"]
WAYS: Mapping[str, str] = _READ["ways"]
TEXTS: Mapping[str, str] = _READ["texts"]
PIECES: Mapping[str, str] = _READ["pieces"]
KEYS: Mapping[str, Any] = _READ["keys"]
CHOSEN: list[str] = _READ["chosen"]  # passwords as people choose them
GIVEN: list[str] = _READ["given"]  # texts that give one of them away, at `{}`
HARMLESS: list[str] = _READ["harmless"]  # texts in which nothing is a secret


def form(kind: str, seed: int) -> str:
    """Return a secret of a kind that is known by its form."""
    return drawn(FORMS[kind], seed)[0]


def drawn(text: str, seed: int) -> tuple[str, tuple[str, ...]]:
    """Return a text with its secrets drawn, and the secrets."""
    draw = random.Random(f"{seed} {text}")
    parts: list[str] = []

    def put(match: re.Match[str]) -> str:
        spec = match[1]
        if spec[0] == "=":
            parts.append(spec[1:])
            return spec[1:]
        count, alphabet = int(spec[1:]), _ALPHABETS[spec[0]]
        value = "".join(draw.choices(alphabet, k=count))
        if spec[0] in "ms" and count > 3:
            value = f"{value[1 : count // 2]}7{value[count // 2 : -2]}kQ"[:count]
        if spec[0] == "s":
            value = f"{value[:5]}!{value[6:]}"
        parts.append(value)
        return value

    return _SPEC.sub(put, text), tuple(parts)


def leaks(sent: str, parts: tuple[str, ...]) -> bool:
    """Whether any secret is sent: the whole of a short one, or any sixteen characters of a long one."""
    return any(
        part[at : at + 16] in sent
        for part in parts
        if len(part) > 3
        for at in range(0, max(len(part) - 15, 1), 4)
    )


_KEY = "".join(random.Random(5).choices(ALNUM + "+/", k=64 * 6))
KEY_PARTS = tuple(_KEY[at : at + 64] for at in range(0, len(_KEY), 64))
KEY = "\n".join([*KEY_PARTS, "aB3x9Q=="])
"""The lines of the key of `key_blocks`."""

BLOCK = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n-----END RSA PRIVATE KEY-----"


def key_blocks() -> Iterator[tuple[str, str]]:
    """Yield private keys as texts have them."""
    block = BLOCK.split("\n")
    for prefix in KEYS["prefixes"]:
        yield f"behind {prefix!r}", "\n".join(prefix + line for line in block)
    for how, (before, behind, between) in KEYS["lines"].items():
        yield how, between.join(f"{before}{line}{behind}" for line in block)
    for how, (head, end) in KEYS["heads"].items():
        yield how, f"{head}{KEY}{end}"
    yield "line numbers", "\n".join(f"{number:4d}  {line}" for number, line in enumerate(block, 1))
    yield (
        "line numbers with bars",
        "\n".join(f"{number}| {line}" for number, line in enumerate(block, 9)),
    )
    yield "diff hunk", "@@ -1,3 +1,9 @@\n" + "\n".join(f"+{line}" for line in block)
    yield "html code", f"<pre><code>{BLOCK}</code></pre>"
    yield "json", json.dumps({"key": BLOCK})
    yield "json twice", json.dumps(json.dumps({"key": BLOCK}))
    yield "json array", json.dumps(block, indent=2)
    yield "percent", quote(BLOCK)
    head, end = KEYS["heads"]["proc type"]
    yield "proc type quoted", "\n".join("> " + line for line in f"{head}{KEY}{end}".split("\n"))
    putty = f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 7\n{KEY}"
    yield "putty quoted", "\n".join("# " + line for line in putty.split("\n"))
    yield "base64", base64.b64encode(BLOCK.encode()).decode()
    log = (f"2026-01-01T00:00:0{at} host app[1]: {line}" for at, line in enumerate(block))
    yield "log lines", "\n".join(log)
    cells = (f"<tr><td>{at}</td><td>{line}</td></tr>" for at, line in enumerate(block))
    yield "table cells", "\n".join(cells)


def generated(seed: int) -> Mapping[str, str]:
    """Draw a value from each usual generator, given its alphabet and length."""
    draw, lower = random.Random(seed), string.ascii_lowercase + string.digits
    punctuation = "".join(sorted(set(string.punctuation) - set("\"'`\\")))

    def with_symbols(symbols: str, count: int) -> str:
        # Such generators see to it that each class is there.
        classes = (string.ascii_lowercase, string.ascii_uppercase, string.digits, symbols)
        value = [*map(draw.choice, classes), *draw.choices(ALNUM + symbols, k=count - 4)]
        draw.shuffle(value)
        return "".join(value)

    django = "".join(draw.choices(lower + "!@#$%^&*(-_=+)", k=50))
    return {
        "django": django,
        "django insecure": f"django-insecure-{django}",
        "openssl base64": base64.b64encode(draw.randbytes(32)).decode(),
        "openssl hex": draw.randbytes(24).hex(),
        "pwgen": with_symbols(punctuation, 20),
        "1password": with_symbols("!@.-_*", 20),
        "keepass": with_symbols("!#$%&*+-=?@^_|~", 20),
        "browser": "-".join(with_symbols(lower, 6) for _ in range(3)),
        "secrets": base64.urlsafe_b64encode(draw.randbytes(32)).rstrip(b"=").decode(),
    }


_CYRILLIC = str.maketrans("aceopxs", "\u0430\u0441\u0435\u043e\u0440\u0445\u0455")
_FULL = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_BOLD = {ord("a") + at: 0x1D41A + at for at in range(26)}


def _dumped(text: str, group: int) -> str:
    """Return a text as `xxd` dumps it, with this many bytes a group."""
    data = text.encode()
    lines: list[str] = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        groups = [part[first : first + group].hex() for first in range(0, len(part), group)]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}: {' '.join(groups)}  {shown}")
    return "\n".join(lines)


def _in_words(text: str) -> str:
    """Return a text as `hexdump` shows it: in words of two bytes, the second one first."""
    data = text.encode() + b"\n" * (len(text.encode()) % 2)
    words = [f"{data[at + 1]:02x}{data[at]:02x}" for at in range(0, len(data), 2)]
    lines = [f"{at * 2:07x} {' '.join(words[at : at + 8])}" for at in range(0, len(words), 8)]
    return "\n".join(lines)


DISGUISES: Mapping[str, Callable[[str], str]] = {
    "cyrillic": lambda text: text.translate(_CYRILLIC),
    "full-width": lambda text: text.translate(_FULL),
    "mathematical": lambda text: text.translate(_BOLD),
    "zero-width": "\u200b".join,
    "joiners": "\u2060".join,
    "bidi": lambda text: f"\u202d{text[:4]}\u202c{text[4:]}",
    "accents": lambda text: text.replace("a", "a\u0301"),
    "soft hyphens": lambda text: text.replace("s", "s\u00ad"),
    "variation selectors": lambda text: text.replace("e", "e\ufe0f").replace("a", "a\ufe0f"),
    "tags": lambda text: text[:3] + "\U000e0061" + text[3:],
    "no-break blanks": lambda text: text.replace(" ", "\u00a0"),
    "curly quotes": lambda text: text.replace('"', "\u201d"),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of utf-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base64 url": lambda text: base64.urlsafe_b64encode(f"{text}?>~ and more".encode()).decode(),
    "base64 over lines": lambda text: base64.encodebytes(
        f"{text}\n{'more of the same ' * 9}".encode()
    ).decode(),
    "base64 twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "hex": lambda text: text.encode().hex(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32 without its end": lambda text: base64.b32encode(text.encode()).decode().rstrip("="),
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "xxd": lambda text: _dumped(text, 2),
    "xxd of single bytes": lambda text: _dumped(text, 1),
    "xxd pairs": lambda text: " ".join(re.findall("..?.?.?", text.encode().hex())),
    "xxd plain over lines": lambda text: "\n".join(re.findall(".{1,32}", text.encode().hex())),
    "hexdump": _in_words,
    "percent": lambda text: quote(text, safe=""),
    "percent all": lambda text: "".join(f"%{ord(char):02X}" for char in text),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "hex entities": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "quote entities": html.escape,
    "x escapes": lambda text: "".join(f"\\x{ord(char):02x}" for char in text),
    "u escapes": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "octal": lambda text: "".join(f"\\{ord(char):03o}" for char in text),
    "json": json.dumps,
    "json twice": lambda text: json.dumps(json.dumps({"a": text})),
    "escaped markdown": lambda text: re.sub(r"([_\-.*#=:'\"])", r"\\\1", text),
    "numbers": lambda text: str([ord(char) for char in text]),
    "hex numbers": lambda text: ", ".join(f"0x{ord(char):02x}" for char in text),
}
DISGUISED: Mapping[str, str] = {
    "a password": 'password = "«m12»"',
    "a key": "sk-ant-api03-«a80»AA",
    "a setting": "DB_PASSWORD=«m12» and more words",
}


def encoded(seed: int) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield disguised secrets: the disguise, the text, and the parts that must not be sent."""
    for what, text in DISGUISED.items():
        plain, parts = drawn(text, seed)
        for how, disguise in DISGUISES.items():
            written = disguise(plain)
            hidden = parts if parts[0] in written else (written[len(written) // 2 :][:24], parts[0])
            yield f"{what}, {how}", f"Note: {written}\nend", hidden
    for how, text in PIECES.items():
        yield how, *drawn(text, seed)
