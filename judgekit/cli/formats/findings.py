"""Renders a finding as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_finding(finding: Mapping[str, Any]) -> list[str]:
    """Render a finding as lines: dimension, location and issue, then the quote and suggestion."""
    subject = " in ".join(filter(None, (finding.get("dimension"), finding.get("location"))))
    issue = finding["issue"]
    text_lines = [f"- {subject}: {issue}" if subject else f"- {issue}"]
    if finding["quote"]:
        text_lines.append(f'  > "{finding["quote"]}"')
    if finding["suggestion"]:
        text_lines.append(f"  -> {finding['suggestion']}")
    return text_lines
