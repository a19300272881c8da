"""Programs forked at an exchange: the tape before it, one thing changed, live behind it, and a control."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agents import provider as fake
from refork import agents, compare
from refork.agents import fork
from refork.agents.dialects import answer_begun, answer_edited, answer_pieces, answer_with, read_answer
from refork.agents.fork import Outcome, ProgramChange, ProgramForkSettings, cost_of, fork_run
from refork.agents.tape import events_of
from refork.errors import BadChange, BadInput, CannotDo
from refork.tree import Tree

#: Asks three times; what it says at the end is the last answer.
AGENT = """
import json, os, sys, urllib.request as web
talk = [{"role": "system", "content": "be kind"}]
tools = [{"type": "function", "function": {"name": "look"}}]
for turn in range(3):
    talk.append({"role": "user", "content": "turn %d" % turn})
    asked = {"model": "m", "messages": talk, "tools": tools, "temperature": 0.5}
    request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(asked).encode())
    request.add_header("content-type", "application/json")
    said = json.load(web.urlopen(request))["choices"][0]["message"]["content"]
    talk.append({"role": "assistant", "content": said})
print(said)
"""


@pytest.fixture
def recorded(tmp_path):
    """A tape with a run of three exchanges, its provider, and settings that lead there."""
    (tmp_path / "agent.py").write_text(AGENT)
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (provider, address):
        run = agents.record(tree, [sys.executable, "agent.py"], to=address, folder=tmp_path, quiet=True)
        assert run.output == "answer 3\n"
        provider.asked.clear()
        yield tree, run, provider, ProgramForkSettings(to=address)


def texts(arm):
    return [[step.text for step in trajectory] for trajectory in arm.leaves()]


def test_another_answer_with_the_recorded_one_as_control(recorded):
    tree, run, provider, settings = recorded
    change = ProgramChange.parse("answer:no: really")
    base, other = fork_run(tree, run, 1, change, 2, settings=settings, outcome=Outcome(succeeds="answer"))
    # Two draws of two arms ask for the last answer alone: all before it is the tape's.
    assert len(provider.asked) == 4
    said = [
        [m["content"] for m in asked["messages"] if m["role"] == "assistant"]
        for _, _, asked in provider.asked
    ]
    assert sorted(said) == sorted(2 * [["answer 1", "answer 2"], ["answer 1", "no: really"]])
    assert [base.values(), other.values()] == [[1.0, 1.0], [1.0, 1.0]]
    for arm, text in ((base, "answer 2"), (other, "no: really")):
        for path in texts(arm):
            assert path[1:4] == ["be kind\nturn 0", "answer 1", ""]
            assert path[4:7] == ["turn 1", text, "turn 2"]
            assert path[7].startswith("answer ")
            assert path[8] == path[7] + "\n"
    effect = compare(base, other)
    assert (effect.tokens, effect.seconds > 0) == (4 * 3, True)
    assert (effect.draws, effect.difference, effect.paired) == (2, 0.0, False)
    assert list(tree.verify()) == []


def test_what_is_drawn_is_not_drawn_again(recorded):
    tree, run, provider, settings = recorded
    fork_run(tree, run, 2, ProgramChange("again"), 1, settings=settings)
    assert len(provider.asked) == 1  # the control keeps the last answer, and nothing comes behind it
    base, other = fork_run(tree, run, 2, ProgramChange("again"), 3, settings=settings)
    assert len(provider.asked) == 3
    assert [len(base.draws), len(other.draws)] == [3, 3]
    # Another change at the same point has the same control.
    again, _ = fork_run(tree, run, 2, ProgramChange("answer", "x"), 3, settings=settings)
    assert again.record.id == base.record.id
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("text:kind=>rude", lambda asked: asked["messages"][0]["content"], "be rude"),
        ("set:temperature=0", lambda asked: asked["temperature"], 0),
        ("model:other", lambda asked: asked["model"], "other"),
        ("forbid:look", lambda asked: asked.get("tools", "none"), "none"),
    ],
)
def test_changed_requests_are_changed_from_there_on(recorded, change, path, value):
    tree, run, provider, settings = recorded
    base, other = fork_run(tree, run, 1, ProgramChange.parse(change), 1, settings=settings)
    assert [draw.end for arm in (base, other) for draw in arm.draws] == ["done", "done"]
    # Both arms ask twice, for the answer at the point and the one behind it.
    assert len(provider.asked) == 4
    assert sorted(path(asked) == value for _, _, asked in provider.asked) == [False, False, True, True]


def test_changes_that_change_nothing_or_are_none_are_refused_before_anything_runs(recorded):
    tree, run, provider, settings = recorded
    for change in ("text:purple=>green", "forbid:fly", "set:temperature=0.5"):
        with pytest.raises(BadChange, match="changes nothing"):
            fork_run(tree, run, 1, ProgramChange.parse(change), 1, settings=settings)
    for wrong in ("answer:", "text:a", "text:=>b", "set:temperature", "purple:x", ""):
        with pytest.raises(BadChange, match="no change"):
            ProgramChange.parse(wrong)
    for event, draws in ((3, 1), (-1, 1), (1, 0)):
        with pytest.raises(BadInput):
            fork_run(tree, run, event, ProgramChange("again"), draws, settings=settings)
    with pytest.raises(BadInput, match="regular expression"):
        Outcome(fails="(")
    assert provider.asked == []
    assert list(tree.forks()) == []


def test_a_draw_that_leaves_the_tape_before_the_point_is_an_error_and_asks_nobody(recorded, tmp_path):
    tree, run, provider, settings = recorded
    (tmp_path / "agent.py").write_text(AGENT.replace("be kind", "be quick"))
    base, other = fork_run(tree, run, 1, ProgramChange("again"), 1, settings=settings)
    for arm in (base, other):
        assert [draw.end for draw in arm.draws] == ["error"]
        assert "be quick" in arm.draws[0].error
        assert arm.values() == [None]
    assert provider.asked == []


def test_a_program_that_takes_too_long_is_ended_and_a_crash_is_an_outcome(recorded, tmp_path):
    tree, run, _, settings = recorded
    slow = "\nif 'bad' in said: import time; time.sleep(600)\nsys.exit(said == 'answer 3')"
    (tmp_path / "agent.py").write_text(AGENT + slow)
    more = ProgramForkSettings(to=settings.to, limit_s=5.0)
    base, other = fork_run(tree, run, 2, ProgramChange("answer", "bad"), 1, settings=more)
    assert [(draw.end, draw.error) for draw in (*base.draws, *other.draws)] == [
        ("done", None),
        ("limit", None),
    ]
    assert [*base.values(), *other.values()] == [0.0, 0.0]


def test_draws_are_graded_by_the_outcome_that_is_asked_for_now(recorded):
    tree, run, provider, settings = recorded
    change = ProgramChange("answer", "no")
    for pattern, graded in (("answer", 1.0), ("nothing like it", 0.0)):
        arms = fork_run(tree, run, 1, change, 2, settings=settings, outcome=Outcome(succeeds=pattern))
        assert [arm.values() for arm in arms] == [[graded, graded], [graded, graded]]
    assert len(provider.asked) == 4
    # Draws of another version of the program are another arm's.
    file = Path(run.folder, "agent.py")
    file.write_text(file.read_text() + "# the same, in another version\n")
    again = fork_run(tree, run, 1, change, 1, settings=settings)[1]
    assert again.record.id != arms[1].record.id


def test_a_command_looks_at_what_a_draw_left_and_reads_what_it_printed(recorded, tmp_path):
    tree, run, provider, settings = recorded
    change = ProgramChange.parse("answer:no")
    (tmp_path / "mark").write_text("")
    told = "test -f mark && grep -q answer && echo looked"
    base, other = fork_run(tree, run, 2, change, 2, settings=settings, outcome=Outcome(check=told))
    assert (base.values(), other.values(), provider.asked) == ([1.0, 1.0], [0.0, 0.0], [])
    (end,) = {tree.node(draw.leaf).extra["run"]["check"]["output"] for draw in base.draws}
    assert end == "looked\n"
    # It is not there any more after a draw: another command is another arm. A pattern counts beside it.
    both = Outcome(fails="answer", check="true")
    again, _ = fork_run(tree, run, 2, change, 2, settings=settings, outcome=both)
    assert {one.leaf for one in again.draws}.isdisjoint(one.leaf for one in base.draws)
    assert again.values() == [0.0, 0.0]
    with pytest.raises(BadInput, match=r"cannot be run.*nothing-like-it"):
        fork_run(tree, run, 2, change, 2, settings=settings, outcome=Outcome(check="nothing-like-it"))
    with pytest.raises(BadInput, match="empty"):
        Outcome(check=" ")


def test_a_judge_grades_what_is_on_the_tape(recorded, tmp_path):
    tree, run, provider, settings = recorded
    (tmp_path / "judge.py").write_text(
        "def short(path):\n"
        "    said = [step.node.text for step in path.steps if step.node.kind == 'action']\n"
        "    return None if said[-1] == 'hm' else float(len(said[-1]) < 5)\n"
    )
    by = Outcome(judge=f"{tmp_path / 'judge.py'}:short")
    for said, value in (("no", 1.0), ("quite long", 0.0), ("hm", None)):
        change = ProgramChange.parse(f"answer:{said}")
        base, other = fork_run(tree, run, 2, change, 2, settings=settings, outcome=by)
        assert (base.values(), other.values()) == ([0.0, 0.0], [value, value])
    # What is drawn is graded by another outcome, and nobody is asked.
    base, _ = fork_run(tree, run, 2, change, 2, settings=settings, outcome=Outcome(succeeds="answer"))
    assert (base.values(), provider.asked) == ([1.0, 1.0], [])
    with pytest.raises(BadInput):
        Outcome(judge="no-such-judge")


def test_of_equal_requests_the_one_that_is_named_is_the_point(tmp_path):
    """Draws of one prompt, as best-of-n agents ask for them: the first stays what it was."""
    ask = AGENT[AGENT.index("import") : AGENT.index("talk =")] + "talk = []\ntools = []\n"
    same = AGENT[AGENT.index("for turn") : AGENT.index("print")].replace('"turn %d" % turn', '"say it"')
    program = (
        ask
        + "found = []\n"
        + same.replace(
            '    talk.append({"role": "assistant", "content": said})',
            "    talk.clear()\n    found.append(said)",
        )
    )
    (tmp_path / "agent.py").write_text(program + "print(found)\n")
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving() as (_, address):
        run = agents.record(tree, [sys.executable, "agent.py"], to=address, folder=tmp_path, quiet=True)
        assert run.output == "['answer 1', 'answer 2', 'answer 3']\n"
        assert len({event.wire.digest for event in events_of(tree, run)}) == 1
        settings = ProgramForkSettings(to=address)
        base, other = fork_run(tree, run, 1, ProgramChange("answer", "no"), 1, settings=settings)
        ends = [path[-1] for arm in (base, other) for path in texts(arm)]
        assert ends == [
            "['answer 1', 'answer 2', 'answer 4']\n", "['answer 1', 'no', 'answer 5']\n"
        ]  # fmt: skip


def test_an_exchange_that_failed_can_be_asked_again_and_not_be_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(fork, "_PAUSES", (0.0,))
    (tmp_path / "agent.py").write_text(AGENT)
    with Tree.open(tmp_path / "tape.db") as tree:
        with fake.serving([("answer 1", None), (500, {"error": "overloaded"})]) as (_, address):
            run = agents.record(tree, [sys.executable, "agent.py"], to=address, folder=tmp_path, quiet=True)
        assert run.exit != 0
        with fake.serving() as (provider, address):
            settings = ProgramForkSettings(to=address)
            base, other = fork_run(tree, run, 1, ProgramChange("again"), 2, settings=settings)
            assert (base.values(), other.values()) == ([0.0, 0.0], [1.0, 1.0])
            assert len(provider.asked) == 4
            with pytest.raises(CannotDo, match="cannot be replaced"):
                fork_run(tree, run, 1, ProgramChange("answer", "x"), 2, settings=settings)
        # Nobody listens any more: how the program ends then is no outcome of a change.
        with pytest.raises(CannotDo, match="ConnectError"):
            fork_run(tree, run, 0, ProgramChange("answer", "x"), 1, settings=settings)
        dead = agents.record(tree, [sys.executable, "agent.py"], to=address, folder=tmp_path, quiet=True)
        assert "ConnectError" in events_of(tree, dead)[0].wire.failed
        assert agents.replay(tree, dead, quiet=True).identical


def test_draws_at_the_same_time_are_the_draws_one_by_one(recorded):
    tree, run, _, settings = recorded
    more = ProgramForkSettings(to=settings.to, jobs=4)
    base, other = fork_run(tree, run, 1, ProgramChange("answer", "no"), 4, settings=more)
    assert [[draw.draw for draw in arm.draws] for arm in (base, other)] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert all(path[5] == "no" for path in texts(other))
    assert list(tree.verify()) == []


def test_the_cost_is_told_by_what_the_recorded_run_asked(recorded):
    tree, run, _, _ = recorded
    cost = cost_of(tree, run, 1, 8)
    assert (cost.calls, cost.tokens) == (32, 320)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("end", fake.MADE)
def test_an_answer_can_be_replaced_in_every_dialect(end, stream):
    name = {"enerateContent": "gemini", "/api/chat": "ollama"}.get(end) or end.split("/")[1]
    whole, pieces = fake.MADE[end]("it is", fake.CALL)
    kind = (
        "application/json"
        if not stream
        else "application/x-ndjson"
        if name == "ollama"
        else "text/event-stream"
    )
    body = b"".join(pieces) if stream else json.dumps(whole).encode()
    made = b"".join(answer_with(name, kind, body, "no, wait"))
    read = read_answer(name, kind, made)
    assert (read.text, read.finish) == ("no, wait", "stop")
    assert "tool_calls" not in read.message
    assert (b"data:" in made) == (b"data:" in body)


@pytest.mark.parametrize("stream", [False, True])
def test_replaced_answers_are_read_by_the_packages_of_their_providers(stream):
    anthropic, openai = pytest.importorskip("anthropic"), pytest.importorskip("openai")
    made = {}
    for end, make in (("chat", fake.chat), ("responses", fake.responses), ("messages", fake.messages)):
        whole, pieces = make("it is", fake.CALL)
        kind = "text/event-stream" if stream else "application/json"
        body = b"".join(pieces) if stream else json.dumps(whole).encode()
        made[end] = (kind, b"".join(answer_with(end, kind, body, "no, wait")))

    async def provider(scope, receive, send):
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        kind, body = next(one for end, one in made.items() if end in scope["path"])
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    from refork.serve.local import http_server, running

    server = http_server(lambda: provider, head_s=60.0, connections=64, drain_s=1, level="critical")
    talk = [{"role": "user", "content": "hi"}]
    with (
        running(server, "127.0.0.1", 0, "") as address,
        openai.OpenAI(base_url=address, api_key="x") as client,
        anthropic.Anthropic(base_url=address, api_key="x") as other,
    ):
        if stream:
            with client.chat.completions.stream(model="m", messages=talk) as events:
                chat = events.get_final_completion().choices[0].message.content
            with client.responses.stream(model="m", input="hi") as events:
                response = events.get_final_response().output_text
            with other.messages.stream(model="m", max_tokens=9, messages=talk) as events:
                message = events.get_final_message().content[0].text
        else:
            chat = client.chat.completions.create(model="m", messages=talk).choices[0].message.content
            response = client.responses.create(model="m", input="hi").output_text
            message = other.messages.create(model="m", max_tokens=9, messages=talk).content[0].text
    assert [chat, response, message] == ["no, wait"] * 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("name", "make"), [("chat", fake.chat), ("messages", fake.messages)])
def test_an_answer_is_cut_into_pieces_and_begun_with_some_of_them(name, make, stream):
    whole, pieces = make(" door, now", fake.CALL)
    kind = "text/event-stream" if stream else "application/json"
    body = b"".join(pieces) if stream else json.dumps(whole).encode()
    assert answer_pieces(name, kind, body) == [" door", ",", " now"]
    begun = b"".join(answer_begun(name, kind, body, "the red"))
    said, before = read_answer(name, kind, begun), read_answer(name, kind, body)
    assert said.text == "the red door, now"
    assert said.message["tool_calls"] == before.message["tool_calls"]
    assert (said.tokens_out, said.finish) == (before.tokens_out, before.finish)
    # Tokens of the engine where it told them, and only where they are the text.
    if name == "chat" and not stream:
        for told, wanted in ((" do", [" do", "or, now"]), (" d", [" door", ",", " now"])):
            whole["choices"][0]["logprobs"] = {"content": [{"token": told}, {"token": "or, now"}]}
            assert answer_pieces(name, kind, json.dumps(whole).encode()) == wanted


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("chat", fake.chat), ("messages", fake.messages), ("responses", fake.responses),
        ("gemini", fake.gemini), ("ollama", fake.ollama),
    ],
)  # fmt: skip
def test_a_part_of_an_answer_is_changed_and_all_else_stays(name, make, stream):
    whole, pieces = make("look at the red door now", fake.CALL)
    kind = "application/json"
    if stream:
        kind = "application/x-ndjson" if name == "ollama" else "text/event-stream"
    body = b"".join(pieces) if stream else json.dumps(whole).encode()
    before = read_answer(name, kind, body)
    # A text that comes in several pieces of a stream, and an argument of a call.
    one = b"".join(answer_edited(kind, body, "the red door", "a wall"))
    two = read_answer(name, kind, b"".join(answer_edited(kind, one, "door", "window")))
    assert two.text == "look at a wall now"
    (call,) = two.message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"at": "window"}
    assert (two.finish, two.tokens_in, two.tokens_out) == (before.finish, before.tokens_in, before.tokens_out)
    assert call["function"]["name"] == "look"
    # As many events as were recorded, each still by itself.
    if stream:
        again = answer_edited(kind, body, "now", "then")
        assert [piece.count(b"{") > 0 for piece in again].count(True) == sum(b"{" in p for p in pieces)
    with pytest.raises(BadChange, match="changes nothing"):
        answer_edited(kind, body, "tool_use", "x")  # no name or mark of the format is what was said
    with pytest.raises(CannotDo, match="cannot be changed"):
        answer_edited("text/plain", b"hello", "hello", "x")


def test_a_changed_part_goes_to_the_program(recorded):
    tree, run, _, settings = recorded
    change = ProgramChange.parse("part:answer 2=>")
    base, other = fork_run(tree, run, 1, change, 1, settings=settings, outcome=Outcome(succeeds="answer"))
    assert [texts(arm)[0][5] for arm in (base, other)] == ["answer 2", ""]
    with pytest.raises(BadChange, match="changes nothing"):
        fork_run(tree, run, 1, ProgramChange.parse("part:purple=>x"), 1, settings=settings)


@pytest.fixture
def failing(recorded, monkeypatch):
    """A provider that fails from some request on, as told: statuses in turn, then answers again."""
    tree, run, provider, settings = recorded
    statuses, real = [], provider.__call__
    monkeypatch.setattr(fork, "_PAUSES", (0.0, 0.0))

    async def answers(self, scope, receive, send):
        if scope["type"] == "http" and statuses and (status := statuses.pop(0)):
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"over capacity"})
            return
        await real(scope, receive, send)

    monkeypatch.setattr(type(provider), "__call__", answers)
    return tree, run, provider, settings, statuses


def test_an_outage_of_the_provider_is_no_outcome_of_the_program(failing):
    tree, run, provider, settings, statuses = failing
    # The program does not ask again: it ends with an error, and the draw is begun anew.
    statuses += [0, 503, 429]
    base, other = fork_run(tree, run, 2, ProgramChange("again"), 2, settings=settings)
    assert (len(statuses), [base.values(), other.values()]) == (0, [[1.0, 1.0], [1.0, 1.0]])
    assert len(provider.asked) == 2
    # Nor is one that goes on: what was drawn stays, and the same call goes on from there.
    statuses += 5 * [503]
    with pytest.raises(CannotDo, match=r"HTTP 503: over capacity") as told:
        fork_run(tree, run, 2, ProgramChange("again"), 3, settings=settings)
    assert "the same command goes on" in (told.value.hint or "")
    statuses.clear()
    base, other = fork_run(tree, run, 2, ProgramChange("again"), 3, settings=settings)
    assert [len(base.draws), len(other.draws)] == [3, 3]
    assert [base.values(), other.values()] == [[1.0] * 3, [1.0] * 3]
    assert list(tree.verify()) == []


def test_a_model_that_is_not_there_is_said_to_be_and_asked_once(failing):
    tree, run, _, settings, statuses = failing
    statuses += 9 * [404]
    with pytest.raises(CannotDo, match="HTTP 404"):
        fork_run(tree, run, 2, ProgramChange("model", "", "nobody"), 2, settings=settings)
    assert len(statuses) >= 7  # another draw may have begun


def test_a_program_that_asks_again_gets_over_it(failing, tmp_path):
    tree, run, _, settings, statuses = failing
    # Another version of the program, which asks up to three times.
    again = AGENT.replace("    said = json", """    for _ in range(2):
        try:
            web.urlopen(request)
            break
        except OSError:
            pass
    said = json""")  # fmt: skip
    (tmp_path / "agent.py").write_text(again)
    statuses += [503]
    arms = fork_run(tree, run, 0, ProgramChange("again"), 1, settings=settings)
    assert [draw.error for arm in arms for draw in arm.draws] == [None, None]
    assert not statuses


def test_a_budget_ends_a_fork_that_goes_on_with_a_larger_one(recorded):
    tree, run, provider, settings = recorded
    change = ProgramChange("again")
    # A draw of the control asks twice, one of the other arm three times.
    with pytest.raises(CannotDo, match="the budget of 6 requests is spent: 7 were asked"):
        fork_run(tree, run, 0, change, 4, settings=replace(settings, budget=6))
    assert len(provider.asked) == 7
    base, other = fork_run(tree, run, 0, change, 4, settings=replace(settings, budget=20))
    assert (len(base.draws), len(other.draws), len(provider.asked)) == (4, 4, 20)


def test_another_version_of_the_program_is_named_where_it_leaves_the_tape(recorded, tmp_path):
    tree, run, provider, settings = recorded
    (tmp_path / "agent.py").write_text(AGENT.replace("turn %d", "Turn %d"))
    base, other = fork_run(tree, run, 1, ProgramChange("again"), 1, settings=settings)
    assert provider.asked == []
    for arm in (base, other):
        (draw,) = arm.draws
        assert (draw.error or "").endswith("; agent.py changed since")
