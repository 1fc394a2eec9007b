"""Whether the hook is switched off, told without pydantic or YAML: for files that cannot be validated.

Nobody who wrote `enabled: false` is to be answered because something else is wrong. Whatever is in doubt
counts as off.
"""

from __future__ import annotations

import os
import re

from judgekit import paths
from judgekit.retrieval import sqljson

VARIABLE = "JUDGEKIT_RETRIEVAL_ENABLED"
_TRUE = ("true", "yes", "on", "1", "t", "y")  # what pydantic takes for a truth value
_MOST = 1_000_000  # characters of a file; no configuration has as many
# No section but `retrieval` has such a key, in a configuration of ours.
_KEY = re.compile(r"""(?<![\w.\\/-])(["']?)enabled\1\s*:\s*["']?(\w*)""")
_COMMENT = re.compile(
    r"^[^\S\n]*+#.*$|^([^\"'\n]*?)\s#.*$", re.MULTILINE
)  # where it cannot stand inside a text


def is_off(project: str) -> bool:
    """Whether the first source that says so, in the order of authority, switches the hook off."""
    variable = os.environ.get(VARIABLE, "")
    if variable:
        return variable.lower() not in _TRUE
    user, own, foreign = paths.configuration_files(project)
    for said in (_yaml(own), _json(foreign, project), _yaml(user)):
        if said is not None:
            return not said
    return False


def _yaml(path: str) -> bool | None:
    return _said(path, _text(path))


def _json(path: str, project: str) -> bool | None:
    """Return what another tool's settings say; of those that lie outside the project, nothing."""
    inside = os.path.join(os.path.realpath(project), "")
    if not os.path.realpath(path).startswith(inside):
        return None
    text = _text(path)
    try:
        found = sqljson.loads(text)
    except ValueError:  # which `enabled` is meant cannot be told
        return _said(path, text)
    section = found.get("retrieval") if isinstance(found, dict) else None
    said = section.get("enabled") if isinstance(section, dict) else None
    return None if said is None else said is True or str(said).lower() in _TRUE


def _said(path: str, text: str) -> bool | None:
    """Return whether all that a file says of `enabled` is that it is; None where it says nothing."""
    if not text and os.path.lexists(path) and _is_unreadable(path):
        return False
    said = [word.lower() in _TRUE for _, word in _KEY.findall(_COMMENT.sub(r"\1", text))]
    return all(said) if said else None


def _is_unreadable(path: str) -> bool:
    return not os.path.isfile(path) or not os.access(path, os.R_OK)


def _text(path: str) -> str:
    """Return the text of a regular file; nothing where there is none, or it cannot be read."""
    try:
        if not os.path.isfile(path):  # a device may have no end
            return ""
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return file.read(_MOST).replace("\0", "")  # of UTF-16 the letters are left
    except OSError:
        return ""
