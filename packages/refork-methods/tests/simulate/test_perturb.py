import json

import pytest

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from refork.worlds.base import Task
from refork_methods.simulate.control.base import Control, Controls, Moment, steer
from refork_methods.simulate.control.parse import parse_control
from refork_methods.simulate.control.perturb import KINDS, Perturb, weak_spots
from support.shelf import Shelf, model

TASK = Task("t", "w", "train", "")
LINES = "\n".join("abcdefg")
ROWS = json.dumps({"rows": [{"id": n} for n in range(5)], "next": None})


def keys(count):
    return [NoiseKey(0, 3, draw) for draw in range(count)]


def said(control, text, count=100, action="ls"):
    return [steer(control, Moment(TASK, (), action, noise), text) for noise in keys(count)]


def test_the_rate_is_kept_and_the_draw_decides():
    control = Perturb(rate=0.3)
    assert isinstance(control, Control)
    found = said(control, LINES, 300)
    struck = sum(text != LINES for text, _ in found) / 300
    assert abs(struck - 0.3) < 0.08, "three standard errors"
    assert found == said(control, LINES, 300)
    assert {what[0]["kind"] for _, what in found if what} == set(KINDS)
    assert all(bool(what) == (text != LINES) for text, what in found)
    assert said(Perturb(rate=0.0), LINES)[0] == (LINES, [])


def test_only_what_fits_the_answer_is_done():
    kinds = {what[0]["kind"] for _, what in said(Perturb(rate=1.0), "one line")}
    assert kinds == {"error"}
    assert not any(what for _, what in said(Perturb(("partial",), 1.0), "one line"))
    assert not any(what for _, what in said(Perturb(rate=1.0), LINES, action="submit 3"))
    aimed = Perturb(rate=1.0, actions=("cat",))
    assert [bool(said(aimed, LINES, 1, action)[0][1]) for action in ("ls", "cat a")] == [False, True]


def test_pages_follow_each_other():
    control = Perturb(("pages",), 1.0, page=3)
    seen, pages = [], []
    for _ in range(4):
        text, _ = steer(control, Moment(TASK, seen, "cat a", NoiseKey(0, 3, 0, len(seen))), LINES)
        seen.append(("cat a", text))
        pages.append(text.split("\n"))
    assert ["".join(page[:-1]) for page in pages] == ["abc", "def", "g", "abc"]
    assert pages[0][-1] == "(page 1 of 3 : repeat the action for the next one)"
    rare = Perturb(("pages",), 0.0, page=3)
    assert steer(rare, Moment(TASK, seen[:1], "cat a", NoiseKey(0, 3, 9)), LINES)[0].startswith("d\n")


def test_tool_answers_stay_json():
    for kind in KINDS:
        for text, _ in said(Perturb((kind,), 1.0), ROWS, 20):
            body = json.loads(text)
            assert body != json.loads(ROWS)
            if kind == "error":
                assert list(body) == ["error"]
            elif kind == "failure":
                assert sum("error" in row for row in body["rows"]) == 1
            else:
                assert len(body["rows"]) < 5
                assert body["note"]


def test_a_model_is_told_only_where_it_is_to_perturb():
    control = Perturb(("error",), 0.5, how="instruct")
    told = [bool(control.instruction(Moment(TASK, (), "ls", noise))) for noise in keys(200)]
    done = said(control, LINES, 200)
    assert [what[0]["how"] == "instructed" if what else False for _, what in done] == told
    assert {text for text, _ in done} == {LINES}
    assert 0.35 < sum(told) / 200 < 0.65
    assert "503" in Controls((control,)).instruction(Moment(TASK, (), "ls", keys(200)[told.index(True)]))


def test_what_is_told_is_what_is_done():
    control = Perturb(rate=1.0, how="both")
    kinds = set()
    for text in ("one line only", LINES):
        for noise in keys(100):
            at = Moment(TASK, (), "ls", noise)
            (done,) = steer(control, at, text)[1]
            alone = Perturb((done["kind"],), 1.0, how="both")
            assert control.instruction(at) == alone.instruction(at)
            kinds.add((done["kind"], done["how"]))
    assert kinds == {(kind, "enforced") for kind in KINDS} | {
        (k, "instructed") for k in KINDS if k != "error"
    }
    # The second page is the control's own: the model answers the whole action again.
    pages = Perturb(("pages",), 1.0, how="both")
    first, _ = steer(pages, Moment(TASK, (), "cat a", keys(1)[0]), LINES)
    assert pages.instruction(Moment(TASK, [("cat a", first)], "cat a", keys(1)[0])) == ""


def test_a_perturbed_world_forks_exactly_and_is_paired():
    world = model(settings=Sampling(max_tokens=40)).world(Shelf(), Perturb(("error",), 0.5))
    task = world.tasks("train", 1)[0]

    def play(seed):
        episode = world.start(task, seed)
        return [episode.step(action) for action in ("ls", "rm b", "ls")]

    assert play(1) == play(1)
    runs = [play(seed) for seed in range(12)]
    errors = [[s.text.startswith("error") for s in run] for run in runs]
    assert len({tuple(run) for run in errors}) > 3
    kinds = [s.info["control"][0]["kind"] for run in runs for s in run if "control" in s.info]
    assert set(kinds) == {"error"}
    assert len(kinds) == sum(map(sum, errors))


def test_weak_spots_name_what_fails():
    episodes = [["ls", "cat a"] if n % 2 else ["ls", "grep x"] for n in range(40)]
    failed = [bool(n % 2) and n % 10 != 1 for n in range(40)]
    spots = weak_spots(episodes, failed)
    assert [spot.name for spot in spots] == ["cat", "grep"], "ls is in all: nothing to compare with"
    assert spots[0].low > 0.4
    assert (spots[0].uses, spots[0].failures, spots[0].excess) == (20, 16, 0.8)
    with pytest.raises(BadInput):
        weak_spots(episodes, failed[1:])


def test_controls_are_written_as_text():
    control = parse_control("perturb:rate=0.4,kinds=error+pages,actions=cat+ls")
    assert control == Perturb(("error", "pages"), 0.4, ("cat", "ls"))
    both = parse_control("stingy;perturb:rate=0.1")
    assert both.name == "stingy+perturb"
    for wrong in ("shout", "perturb:loud=1", "perturb:rate=2", "perturb:rate=x", "stingy:rate=1"):
        with pytest.raises(BadInput):
            parse_control(wrong)
