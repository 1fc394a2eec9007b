"""Whose settings an installation goes into."""

from __future__ import annotations

from typing import Literal, get_args

Scope = Literal["user", "project", "local"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
