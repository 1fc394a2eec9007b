"""Running coroutines from code without a loop, and the log when one ends early."""

import asyncio
import gc

import pytest

from judgekit.providers import running


async def _fail(error: BaseException) -> None:
    raise error


def test_ctrl_c_logs_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fail(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        running.run(work())
    gc.collect()
    assert caplog.messages == []


def test_an_error_that_nobody_awaited_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        task = asyncio.create_task(_fail(ValueError("lost")))
        await asyncio.sleep(0)
        del task
        gc.collect()

    running.run(work())
    assert "Task exception was never retrieved" in caplog.text
