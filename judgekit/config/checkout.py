"""How to install one of judgekit's extras: from the checkout that this copy was installed from."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install(extra: str) -> str:
    """Return what to run to have an extra. It names no package of an index: that could be a stranger's."""
    folder = _checkout()
    if folder is None:
        return f"from your checkout of judgekit: pip install '.[{extra}]'"
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"cd {shlex.quote(str(folder))} && {pip} '.[{extra}]'"


def _checkout() -> Path | None:
    """Return the folder that this copy was installed from, or runs in; None where there is none."""
    try:
        told = metadata.distribution("judgekit").read_text("direct_url.json") or "{}"
        url = urlsplit(json.loads(told).get("url", ""))
        named = Path(unquote(url.path)) if url.scheme == "file" else None
    except (metadata.PackageNotFoundError, OSError, ValueError, AttributeError):
        named = None
    here = Path(__file__).resolve().parents[2]
    return next((path for path in (named, here) if path and (path / "pyproject.toml").is_file()), None)
