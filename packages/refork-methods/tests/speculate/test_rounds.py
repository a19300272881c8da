import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput, DiskFull
from refork_methods.speculate.rounds import Round, RoundLog, Rounds, read_rounds

FULL = Round((1.0, -0.5, 0.25), 3, 1, schedule=None, anchor=7, step=2, tokens_in_batch=8, seconds=0.5)


def test_rounds_come_back(tmp_path):
    log = RoundLog(tmp_path / "rounds.jsonl")
    bare = Round((0.0, 1.0, 2.0), 0, 0)
    ended = Round((0.0, 1.0, 2.0), 3, 2, end_within=True, schedule="fixed")
    assert log.append([FULL, bare]) == 2
    assert log.append([]) == 0
    assert log.append([ended]) == 1
    assert read_rounds(log.path) == ([FULL, bare, ended], 0)


def test_a_torn_line_is_passed_over_and_the_next_append_is_whole(tmp_path):
    file = tmp_path / "rounds.jsonl"
    RoundLog(file).append([FULL, FULL])
    whole = file.read_bytes()
    for cut in range(1, len(whole) // 2):
        file.write_bytes(whole[:-cut])
        RoundLog(file).append([FULL])
        found, torn = read_rounds(file)
        # Without its last byte, the line break, the line itself is whole.
        assert (len(found), torn) == ((3, 0) if cut == 1 else (2, 1)), cut


def _append(path, count):
    for _ in range(count):
        RoundLog(path).append([FULL] * 3)


def test_several_writers_at_once_lose_nothing(tmp_path):
    file = tmp_path / "rounds.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(file, 40)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert read_rounds(file) == ([FULL] * 240, 0)


def test_a_disk_that_takes_no_more(tmp_path):
    with pytest.raises(DiskFull, match="could not be written"):
        RoundLog(tmp_path / "none" / "rounds.jsonl").append([FULL])
    if Path("/dev/full").exists():
        with pytest.raises(DiskFull):
            RoundLog("/dev/full").append([FULL])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "not a JSON object"),
        ("nonsense", "not JSON"),
        ('{"drafted": 1, "accepted": 0}', "logits"),
        ('{"logits": [0.0], "drafted": 2, "accepted": 0}', "0 of 2 verified"),
        ('{"logits": [0.0], "drafted": 1, "accepted": "x"}', "accepted"),
    ],
)
def test_lines_that_are_no_rounds(tmp_path, line, words):
    file = tmp_path / "rounds.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(BadInput, match=words):
        read_rounds(file)
    with pytest.raises(BadInput, match="no such file"):
        read_rounds(tmp_path / "none")


@pytest.mark.parametrize("bad", [(1, 2), (-1, 0), (2, 3)])
def test_rounds_that_cannot_be(bad):
    with pytest.raises(BadInput, match="were kept"):
        Round((0.0, 0.0), bad[0], bad[1])
    with pytest.raises(BadInput, match="not finite"):
        Round((0.0, float("nan")), 1, 1)


def test_columns():
    rounds = Rounds.of([FULL, Round((0.0, 0.0, 0.0), 2, 2)])
    assert rounds.logits.shape == (2, 3)
    assert rounds.step.tolist() == [2, -1]
    assert np.isnan(rounds.seconds[1])
    assert rounds.tokens_in_batch.tolist() == [8, -1]
    with pytest.raises(BadInput, match="no rounds"):
        Rounds.of([])
    with pytest.raises(BadInput, match=r"\[1, 3\] drafts"):
        Rounds.of([FULL, Round((0.0,), 1, 1)])


def test_what_is_known_of_a_block():
    """A rejection settles all that follows; a cut block and an ended answer leave the rest open."""
    z = (0.0,) * 4
    rows = [
        (Round(z, 4, 4), [1, 1, 1, 1], [1, 1, 1, 1]),
        (Round(z, 4, 1), [1, 0, 0, 0], [1, 1, 1, 1]),
        (Round(z, 2, 2), [1, 1, 0, 0], [1, 1, 0, 0]),
        (Round(z, 2, 1), [1, 0, 0, 0], [1, 1, 1, 1]),
        (Round(z, 4, 2, end_within=True), [1, 1, 0, 0], [1, 1, 0, 0]),
        (Round(z, 0, 0), [0, 0, 0, 0], [0, 0, 0, 0]),
    ]
    rounds = Rounds.of([r for r, _, _ in rows])
    assert rounds.prefix_mask().astype(int).tolist() == [kept for _, kept, _ in rows]
    assert rounds.known().astype(int).tolist() == [known for _, _, known in rows]


def test_which_rounds_a_schedule_cut():
    z = (0.0,) * 3
    made = [
        Round(z, n, 0, schedule=s) for n, s in ((3, "early_stop"), (1, "early_stop"), (1, None), (1, "fixed"))
    ]
    assert Rounds.of(made).cut_by_schedule() == 1
