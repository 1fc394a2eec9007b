"""Reads a page as a reader without scripts sees it, and the rows that its script draws."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_EMPTY = {"meta", "br", "input", "link", "img"}


class ReadPage(HTMLParser):
    """The texts of a page by the element that they stand in, its scripts, and its policy."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.scripts: list[str] = []
        self.data = ""
        self.policy = ""
        self.ids: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[tuple[list[str], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.add(tag)
        self.attributes |= attributes.keys()
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"] or ""
        if "id" in attributes:
            self.ids.append(attributes["id"] or "")
        if tag not in _EMPTY:
            self._open.append((tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.data += data
        elif tag == "script":
            self.scripts.append(data)
        elif tag != "style":
            self._texts.append(([name for name, _ in self._open], data))

    def text(self, tag: str = "html") -> str:
        """Return the whole text in elements of this kind."""
        return " ".join(" ".join(data for tags, data in self._texts if tag in tags).split())

    def texts(self, tag: str) -> list[str]:
        """Return the texts right in elements of this kind."""
        return [data for tags, data in self._texts if tags and tags[-1] == tag]

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.data)
        return rows

    @property
    def allowed_scripts(self) -> list[str]:
        return re.findall(r"'sha256-([^']+)'", self.policy)


def script_hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def browse(page: Path, acts: str = "", width: int = 1200) -> ReadPage:
    """Open a page in Chromium, run a script of the test after its own, and read the page then.

    The page's policy lets no script run but its own, by its hash; the test's script is allowed beside it.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    html = page.read_text(encoding="utf-8")
    html = html.replace("script-src ", f"script-src 'sha256-{script_hash(acts)}' ", 1)
    tried = page.with_name(f"tried-{page.name}")
    tried.write_text(html.replace("</body>", f"<script>{acts}</script></body>"), encoding="utf-8")
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
        f"--window-size={width},900",
        f"--user-data-dir={page.parent}/profile",
        tried.resolve().as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return ReadPage(done.stdout)
