from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from judgekit.engine import log as logs
from judgekit.engine.log import Handler, Log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def _break() -> None:
    raise RuntimeError("sk-secret and what was sent")


def test_a_line_has_a_time_and_a_process(tmp_path: Path) -> None:
    for name in ("missing/log", "."):  # where it cannot be written nothing else is lost
        Log(str(tmp_path / name)).add("ready")
    assert list(tmp_path.iterdir()) == []
    Log(str(tmp_path / "log")).add("ready")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    time, process, text = (tmp_path / "log").read_text().split()
    assert (time[-1], process.isdigit(), text) == ("Z", True, "ready")


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 1000)
    log = Log(str(tmp_path / "log"))
    for number in range(200):
        log.add(f"line {number}")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2200
    assert "line 199" in "".join(file.read_text() for file in tmp_path.iterdir())


def test_a_fault_is_a_kind_and_a_place_and_what_libraries_log_loses_its_values(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    logger = logging.getLogger("library")
    logger.propagate = False
    logger.addHandler(Handler(log))
    logger.warning("refused %s\nand more", "sk-secret")
    logger.info("chatter")
    try:
        _break()
    except RuntimeError as error:
        log.fault(error)
        logger.exception("it broke: sk-secret")
    text = (tmp_path / "log").read_text()
    assert "library: refused %s\n" in text
    assert text.count("fault: RuntimeError at test_engine_log.py:") == 1  # the same is written once
    assert "secret" not in text
    assert "chatter" not in text
