"""The loop of turns with roles: who speaks, what is seen, when it ends, what it returns."""

import numpy as np
import pytest

from refork.chat import ChatModel, ScriptedChat
from refork.errors import BadInput, ServerError
from refork_methods.route.backbone import StateFormat
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_methods.route.turns import PROMPTS, ROLES, TurnsChat, accepts, head_caster, named_role, run_turns

ASKED = [{"role": "user", "content": "2 + 2?"}]
FREE = Price(0, 0, 0.5)


def pool(**replies):
    return WorkerPool(tuple(Worker(n, chat=ScriptedChat(r, n), price=FREE) for n, r in replies.items()))


def script(*steps):
    """A caster that names (worker, role) turn by turn, by how many answers there are."""

    def cast(messages):
        worker, role = steps[len(messages) - 1]
        return np.eye(2)[worker], np.eye(3)[ROLES.index(role)]

    return cast


def down(messages):
    raise ServerError("nobody answers")


def broken(messages):
    raise ConnectionError("refused")


def test_it_stops_when_a_verifier_accepts_and_returns_the_last_worker_s_answer():
    team = pool(a=["three", "four"], b=["no\nVERDICT: reject", "yes\nverdict: Accept."])
    done = run_turns(
        ASKED, team, script((0, "worker"), (1, "verifier"), (0, "worker"), (1, "verifier"), (0, "worker"))
    )
    assert (done.end, done.answer) == ("accepted", "four")
    assert [(t.worker, t.role) for t in done.turns] == [
        ("a", "worker"), ("b", "verifier"), ("a", "worker"), ("b", "verifier")
    ]  # fmt: skip
    assert done.bill.total == 2.0
    # A turn sees the conversation, what was said, and its own role's prompt; never another role's.
    said = [m["content"] for m in team["a"].chat.asked[1]]
    assert said == ["2 + 2?", "three", "no\nVERDICT: reject", PROMPTS["worker"]]


def test_five_turns_at_most_and_no_answer_of_a_worker_is_none():
    done = run_turns(ASKED, pool(a=["hm"] * 9, b=[]), script(*[(0, "thinker")] * 9))
    assert (len(done.turns), done.end, done.answer) == (5, "turns", None)
    one = run_turns(ASKED, pool(a=["x"], b=[]), script((0, "worker")), most=1)
    assert (one.end, one.answer) == ("turns", "x")


def test_a_thinker_names_the_next_role_once():
    team = pool(a=["plan\nNEXT: verifier", "VERDICT: accept", "done"], b=[])
    done = run_turns(ASKED, team, script((0, "thinker"), (0, "worker"), (0, "worker")), most=3)
    assert [(t.role, t.named) for t in done.turns] == [
        ("thinker", False), ("verifier", True), ("worker", False)
    ]  # fmt: skip
    # Its accept came before any worker's answer: there was nothing to accept.
    assert (done.end, done.answer) == ("turns", "done")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("VERDICT: accept", True), ("I would accept", False), ("VERDICT: accept\nVERDICT: reject", False),
        ("", False), ("  Verdict: ACCEPT!  ", True),
    ],
)  # fmt: skip
def test_a_verdict_is_a_line_and_the_last_counts(text, found):
    assert accepts(text) is found


def test_a_role_is_named_by_a_line():
    assert named_role("so\nnext: Worker") == "worker"
    assert named_role("NEXT: boss") is None


def test_a_worker_that_fails_is_not_asked_again_and_the_loop_goes_on():
    team = pool(a=down, b=["four"])

    def prefers_a(messages):
        return np.array([0.9, 0.1]), np.array([1.0, 0, 0])

    done = run_turns(ASKED, team, prefers_a, most=2)
    assert [(t.worker, t.said) for t in done.turns] == [("a", None), ("b", "four")]
    assert "nobody answers" in done.turns[0].error
    own = run_turns(ASKED, pool(a=broken, b=["four"]), prefers_a, most=2)
    assert [(t.worker, t.said) for t in own.turns] == [("a", None), ("b", "four")]
    assert "ConnectionError: refused" in own.turns[0].error
    assert run_turns(ASKED, pool(a=down, b=down), prefers_a).end == "nobody"
    only = run_turns(ASKED, pool(a=down, b=["four"]), lambda m: (np.array([1.0, 0]), np.array([1.0, 0, 0])))
    assert (only.end, len(only.turns)) == ("nobody", 1)
    assert team.without("a").mask.tolist() == [False, True]
    assert run_turns(ASKED, pool(a=down, b=["x"]).without("a"), prefers_a, most=1).answer == "x"


def test_the_loop_is_a_chat_model_whose_note_has_its_turns():
    chat = TurnsChat(pool(a=["four"], b=["VERDICT: accept"]), script((0, "worker"), (1, "verifier")))
    assert isinstance(chat, ChatModel)
    reply = chat.reply(ASKED)
    assert (reply.text, reply.cost.money) == ("four", 1.0)
    assert [turn["worker"] for turn in reply.note["turns"]] == ["a", "b"]
    with pytest.raises(ServerError, match="nobody answers"):
        TurnsChat(pool(a=down, b=down), script((0, "worker"))).reply(ASKED)


class Reader:
    """A state that is one-hot in the number of messages."""

    digest = "d" * 64
    format = StateFormat()

    def states(self, talks):
        return np.eye(3)[[len(talk) - 1 for talk in talks]]


def test_a_head_s_role_rows_cast_the_turns():
    reader, team = Reader(), pool(a=["idea"], b=["four", "VERDICT: accept"])
    rows = np.array([[9, 0, 0], [0, 9, 9], [0, 9, 0], [9, 0, 0], [0, 0, 9]], dtype=float)
    head = SelectionHead(rows, ("a", "b"), ROLES).on(reader)
    done = run_turns(ASKED, team, head_caster(head, reader, team))
    assert [(t.worker, t.role) for t in done.turns] == [("a", "thinker"), ("b", "worker"), ("b", "verifier")]
    assert (done.end, done.answer) == ("accepted", "four")
    with pytest.raises(BadInput, match="roles are"):
        head_caster(SelectionHead.zero(("a", "b"), 3).on(reader), reader, team)


def test_what_cannot_be_run_is_refused():
    team = pool(a=["x"], b=["x"])
    for messages, more in (([], {}), (ASKED, {"most": 0}), (ASKED, {"prompts": {}})):
        with pytest.raises(BadInput, match="turns need"):
            run_turns(messages, team, script((0, "worker")), **more)
    with pytest.raises(BadInput, match="3 roles"):
        run_turns(ASKED, team, lambda m: (np.ones(2), np.ones(2)))
