"""Documents as clients of a shared judge send them."""

from __future__ import annotations

import hashlib
from typing import Any


def document(text: str = "# Rotating keys\n\nDo it every 90 days.\n", path: str = "a.md") -> dict[str, Any]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    file = {"path": path, "text": text, "sha256": digest, "total": len(text)}
    return {"files": [file], "task_id": f"{path}@{digest[:16]}"}
