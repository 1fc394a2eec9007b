"""The shapes that the tests of reading replies ask for."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

Point = Annotated[int, Field(ge=0, le=5)]


class Relevance(BaseModel):
    """One number, as a relevance prompt asks for it."""

    relevance: int = Field(ge=0, le=3)
    explanation: str = ""


class Scores(BaseModel):
    """Three dimensions."""

    semantic: Point
    pragmatic: Point
    syntactic: Point


class Nested(BaseModel):
    """Scores in an object of their own."""

    reasoning: str
    scores: Scores


class Flat(Scores):
    """Scores beside the reasoning."""

    reasoning: str


@pytest.fixture
def relevance() -> type[BaseModel]:
    return Relevance


@pytest.fixture
def nested() -> type[BaseModel]:
    return Nested


@pytest.fixture
def flat() -> type[BaseModel]:
    return Flat
