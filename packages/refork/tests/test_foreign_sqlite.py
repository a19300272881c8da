"""Other SQLite files from strangers: logs."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from refork.errors import BadInput
from refork.formats.llm_logs import LLMLogs
from support.hostile_trees import raw

_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "made",
    [
        f"CREATE VIEW responses AS {_ENDLESS} x AS id, x AS prompt, x AS response FROM n",
        "CREATE VIRTUAL TABLE responses USING fts5(id, prompt, response)",
    ],
)
def test_a_log_whose_table_is_none_is_not_read(made, tmp_path):
    file = tmp_path / "logs.db"
    with raw(file) as connection:
        connection.execute(made)
    with pytest.raises(BadInput, match="no tables of llm"):
        list(LLMLogs().read(file))


def test_a_long_read_of_a_log_hears_ctrl_c(tmp_path, monkeypatch):
    file = tmp_path / "logs.db"
    with raw(file) as connection:
        connection.execute("CREATE TABLE responses (id TEXT)")

    def endless(db):
        db.execute(f"{_ENDLESS} count(*) FROM n").fetchone()

    monkeypatch.setattr("refork.formats.llm_logs._tables", endless)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(LLMLogs().read(file))
    timer.join()
