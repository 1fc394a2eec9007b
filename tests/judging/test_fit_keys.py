"""What is remembered of a model of replies goes with it."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

from pydantic import create_model

from judgekit.judging.extract import extract

if TYPE_CHECKING:
    from pydantic import BaseModel


def test_a_model_that_was_made_for_one_reply_is_let_go_of() -> None:
    def read() -> weakref.ref[type[BaseModel]]:
        model = create_model("Reply", keep=(int, ...))
        assert extract('{"keep": 3}', model).model_dump() == {"keep": 3}
        return weakref.ref(model)

    seen = [read() for _ in range(5)]
    gc.collect()
    assert [reference_type() for reference_type in seen] == [None] * 5
