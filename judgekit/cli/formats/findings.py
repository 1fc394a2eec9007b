"""Renders a finding as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def finding_lines(finding: Mapping[str, Any]) -> list[str]:
    """Render a finding's place and message, then its quote and its suggestion."""
    where = " in ".join(filter(None, (finding.get("dimension"), finding.get("location"))))
    lines = [f"- {where}: {finding['issue']}" if where else f"- {finding['issue']}"]
    if finding["quote"]:
        lines.append(f'  > "{finding["quote"]}"')
    if finding["suggestion"]:
        lines.append(f"  -> {finding['suggestion']}")
    return lines
