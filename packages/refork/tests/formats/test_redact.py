"""Secrets on the way in: every known shape is taken out, ordinary text and code stay as they are."""

from __future__ import annotations

import json
import random
import re
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.formats import import_file, reader_for
from refork.formats.redact import Redactor, redacted
from refork.formats.sampled import draft_id
from refork.formats.secret_shapes import GIVEN, NEIGHBOURS, STEMS
from refork.tree import Tree
from refork.tree.node import NewNode
from refork.tree.records import Remark
from refork.tree.score import Producer, Score
from support.secret_samples import samples

SAMPLES = samples(7)


def test_there_are_fifty_shapes():
    assert len({one.name for one in SAMPLES}) == len(SAMPLES) >= 50


def test_every_hint_is_found_by_a_stem():
    for shape in (*NEIGHBOURS, GIVEN):
        for hint in shape.hints:
            assert any(stem in hint for stem in STEMS), hint


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: one.name)
def test_every_shape_is_taken_out_of_text_and_json(sample):
    for text in (sample.text, f"tool said:\n{sample.text}\nand went on", json.dumps({"out": sample.text})):
        redactor = Redactor()
        made = redactor.text(text)
        assert sample.secret not in made
        assert json.dumps(sample.secret)[1:-1] not in made
        assert "[redacted:" in made
        assert sum(redactor.counts.values()) == 1
        assert Redactor().text(made) == made
    made = Redactor().json({"a": [{"b": sample.text}]})
    assert sample.secret not in json.dumps(made)


@pytest.mark.parametrize("seed", range(5))
def test_other_draws_of_the_shapes_are_taken_out_too(seed):
    for sample in samples(seed):
        assert sample.secret not in Redactor().text(sample.text), sample.name


#: Names that say of a value that it is secret.
SECRET_NAMES = (
    *("password", "apiKey", "SECRET_KEY", "db.password", "clientSecret", "passwd_2", "DB_PASS"),
    *("PGPASSWORD", "dbPassword", "rootPass", "SMTP_PASSWD", "mysql_pwd"),
)


@pytest.mark.parametrize("key", SECRET_NAMES)
def test_a_value_under_a_secret_name_is_taken_out_whole(key):
    for value in ("Tr0ub4dor&3", "hunter2"):
        assert Redactor().json({key: value}) == {key: "[redacted:named-secret]"}
        assert Redactor().json([{key: [value]}]) == [{key: ["[redacted:named-secret]"]}]


#: (text, what of it is secret): names that are no words of ours, and structures that other programs write.
GIVEN_OUT = [
    ("DB_PASS=hunter2", "hunter2"),
    ("PGPASSWORD=hunter2 psql -h db -U app", "hunter2"),
    ("PGPASSWORD=correcthorse psql", "correcthorse"),
    ("export MYSQL_PWD=s3cr3t", "s3cr3t"),
    ("env:\n  - SMTP_PASSWD=letmein\n", "letmein"),
    ("docker run -e POSTGRES_PASSWORD=postgres1 -e POSTGRES_USER=app pg", "postgres1"),
    ("docker run -e WIKI_PASS=hunter2 wiki", "hunter2"),
    ("ROOT_PASS='Ab12!x'", "Ab12!x"),
    ("db_password: hunter22\nport: 5432", "hunter22"),
    ("  dbpass = hunt{er2!#x\n", "hunt{er2!#x"),
    ("rootpassword = \"N0tTh1s\"", "N0tTh1s"),
    ("password: p@ss#w$rd", "p@ss#w$rd"),
    ("postgresql://app:hunter2@db.internal:5432/app", "hunter2"),
    ("mongodb+srv://u:Sup3r,S3cret@cluster0.mongodb.net", "Sup3r,S3cret"),
    ("redis://:hunter2@cache:6379/0", "hunter2"),
    ("amqp://guest:gu3st!@rabbit//", "gu3st!"),
    ('{"password": "hunter2", "port": 5}', "hunter2"),
    ('{"db": {"dbPassword": "hunter2"}}', "hunter2"),
    ("{'passwd': 'hunter2'}", "hunter2"),
    ("Server=db;User Id=sa;Password=Str0ng;Encrypt=no", "Str0ng"),
    ("Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
    ("Authorization: Bearer 0123456789abcdefABCDEF", "0123456789abcdefABCDEF"),
    ("Cookie: theme=dark; sessionid=0a1b2c3d4e5f60718293; lang=en", "0a1b2c3d4e5f60718293"),
    ("Set-Cookie: auth_token=0a1b2c3d4e5f60718293; HttpOnly", "0a1b2c3d4e5f60718293"),
    ("if (apikey == \"Zk81,mQ)w{2\") {", "Zk81,mQ)w{2"),
    ("secret => 'Zk81mQw2'", "Zk81mQw2"),
    ("glimt-Zk81mQw2Zk81mQw2Zk81mQw2Z", "glimt-Zk81mQw2Zk81mQw2Zk81mQw2Z"),
    ("ibm_cloud_iam_key=" + "Zk81mQw2xY_" * 4, "Zk81mQw2xY_" * 4),
]  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), GIVEN_OUT, ids=lambda one: one[:24].replace("\n", " "))
def test_what_programs_are_given_is_taken_out_and_nothing_beside_it(text, secret):
    redactor = Redactor()
    made = redactor.text(text)
    before, after = text.split(secret)
    assert made.startswith(before)
    assert made.endswith(after)
    assert re.fullmatch(r"\[redacted:[\w-]+\]", made[len(before) : len(made) - len(after)])
    assert sum(redactor.counts.values()) == 1
    assert Redactor().text(made) == made


def test_a_secret_that_stands_twice_is_taken_out_twice_and_counted():
    redactor = Redactor()
    made = redactor.text('login("Zk81mQw2") # the_password_old = "Zk81mQw2"')
    assert "Zk81" not in made
    assert sum(redactor.counts.values()) == 2


def test_every_secret_of_a_line_is_found():
    line = "; ".join(f'x{n}_password_old = "Zk81mQw{n}"' for n in range(8))
    assert Redactor().text(line).count("[redacted:") == 8


ORDINARY = [
    "commit 1f2e3d4c5b6a79880717263544536271809fafbf fixes it; md5 9e107d9d372bb6826bd81d3542a419d6",
    "id 123e4567-e89b-12d3-a456-426614174000, sha256 " + "0123456789abcdef" * 4,
    'password = os.environ["DB_PASSWORD"]; api_key=settings.api_key, token: str | None = None',
    "def login(user, password): return check(user, password=hash_password(password))",
    'config = {"password": "your_password_here", "api_key": "<API_KEY>", "token": "${TOKEN}"}',
    "export OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx and password=********",
    '{"prompt_tokens": 1234567890123456, "max_tokens": 4096, "next_page_token": "CAUQAA12345678901"}',
    "https://user:password@example.com/ and postgresql://user:pass@localhost/db, http://host:8080/a@b",
    "the token is the 17th; a secret: nobody knows. password must have 8 characters",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "eos_token=<|endoftext|> pad_token_id: 50256; task-risk-score sk-learn sk-estimator-checks-and-more",
    "-----BEGIN PRIVATE KEY----- begins a key in PEM",
    "PWD=/home/me/work1 OLDPWD=/tmp TESTS_PASS=1234 N_PASS=3 WIKI_PASS=/run/wiki1 SMTP_PASSWORD=$OTHER",
    "PASSWORD_FILE=/run/secrets/db1\napi_key_path: /etc/keys/k1.pem\nprivate_key: /etc/ssl/k1.pem",
    "first_pass: v2\nbypass: 1a2b3c4d\nsecret = compute(seed2)\npassword = request.form[0]\npassword: int",
    'password: "Please type it again", secret = "the one that you chose"',
    "APACHECONFIGFILE and APDUCOMMANDSET=x; glossary-of-all-words-that-are-used-here",
]  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text):
    redactor = Redactor()
    assert redactor.text(text) is text
    assert not redactor.counts
    value = {"messages": [{"content": text}], "n": [1, None, 2.5, True]}
    assert redactor.json(value) is value


def test_pythons_own_library_is_left_alone():
    """Of 120 files of code at most one holds what is taken for a secret."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    chosen = random.Random(0).sample(files, min(120, len(files)))
    hit = [file.name for file in chosen if "[redacted:" in Redactor().text(file.read_text(encoding="utf-8"))]
    assert len(hit) <= 1, hit


@given(st.text(max_size=200), st.sampled_from(SAMPLES), st.text(max_size=200))
def test_text_around_a_secret_stays(before, sample, after):
    text = f"{before}\n{sample.text}\n{after}"
    made = Redactor().text(text)
    assert sample.secret not in made or sample.secret in before + after
    assert Redactor().text(made) == made


def test_drafts_lose_the_token_ids_that_spell_a_secret_and_nothing_else():
    secret = SAMPLES[0]
    ids = np.arange(3, dtype=np.int32)
    dirty = NewNode(
        kind="action",
        key="a",
        text=secret.text,
        tokens=ids,
        message={"role": "assistant", "content": secret.text},
    )
    clean = NewNode(kind="action", key="b", text="fine", tokens=ids, extra={"n": 1})
    found = list(redacted(iter([dirty, clean]), Redactor()))
    assert found[-1] is clean
    assert found[0].tokens is None
    assert secret.secret not in repr(found[0])
    kinds = [(one.kind, one.what) for one in found[1:-1] if isinstance(one, Remark)]
    assert kinds == [("redacted", "aws-access-key-id"), ("lost", "token ids of a text with a secret")]


SPELT = SAMPLES[0].text
TOOL = {"type": "function", "function": {"name": "f", "description": SPELT}}


@pytest.mark.parametrize(
    "shown",
    [
        {"message": {"role": "assistant", "content": "fine", "reasoning_content": SPELT}},
        {"extra": {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": SPELT}]}},
        {"extra": {"tools": [TOOL]}},
        {"text": SPELT, "settings": {"forced": [1]}},
    ],
    ids=["reasoning", "messages", "tools", "text"],
)
def test_token_ids_go_with_their_scores_wherever_the_secret_stands(shown):
    ids = np.arange(3, dtype=np.int32)
    new_node = NewNode(**{"kind": "action", "key": "a", "text": "fine", "tokens": ids, **shown})
    giver = Producer("trl")
    node = draft_id(new_node)
    scores = [Score(node, "advantage", np.ones(3), giver.id), Score(node, "reward", 1.0, giver.id)]
    found = list(redacted(iter([new_node, giver, *scores]), Redactor()))
    assert found[0].tokens is None
    assert found[0].settings is None
    assert [one for one in found if isinstance(one, (Producer, Score))] == [giver, scores[1]]
    lost = [one.what for one in found if isinstance(one, Remark) and one.kind == "lost"]
    assert lost == ["token ids of a text with a secret", "advantage of each token of a text with a secret"]


def test_token_ids_stay_where_the_secret_is_not_among_them():
    ids = np.arange(3, dtype=np.int32)
    new_node = NewNode(kind="action", key="a", text="fine", tokens=ids, extra={"line": {"note": SPELT}})
    assert next(redacted(iter([new_node]), Redactor())).tokens is ids


def test_producers_lose_their_secrets_and_keep_their_scores():
    judge = Producer("judge", config={"api_key": SAMPLES[0].secret})
    reader = Producer("mean", reads=(judge.id,))
    score = Score("f" * 32, "s", 1.0, judge.id, SPELT)
    found = [one for one in redacted(iter([judge, reader, score]), Redactor()) if not isinstance(one, Remark)]
    assert SAMPLES[0].secret not in repr(found)
    assert found[1].reads == (found[0].id,)
    assert found[2].producer == found[0].id != judge.id


def test_keys_that_are_secrets_of_one_kind_stay_apart():
    mark = Redactor().text(SAMPLES[0].secret)
    first, second = (samples(seed)[0].secret for seed in (1, 2))
    body = {first: 1, second: 2, mark: 3, "a": 4}
    assert list(Redactor().json(body).items()) == [(mark, 1), (f"{mark} 2", 2), (f"{mark} 3", 3), ("a", 4)]


class Letters:
    """A policy's tokenizer and template, a token for each character."""

    card = SimpleNamespace(tokenizer="letters", kind="scripted")

    def encode(self, text):
        return np.array([ord(one) for one in text], np.int32)

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    def render(self, history, tokens, new):
        return SimpleNamespace(
            tokens=self.encode("".join(f"<{one['content']}>" for one in new)), rewrites=False
        )


def test_with_a_policy_the_clean_text_is_tokenised(tmp_path):
    """No token ids are lost then, and none spells a secret, in what was shown or said."""
    secret = SAMPLES[0]
    turns = [{"role": "user", "content": secret.text}, {"role": "assistant", "content": secret.text}]
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": turns}))
    redactor = Redactor()
    with Tree.memory() as tree:
        found = import_file(
            tree, file, reader_for(file, policy=Letters(), redactor=redactor), redactor=redactor
        )
        nodes = list(tree.walk())
    assert [Letters().decode(node.tokens) for node in nodes] == [f"<{nodes[0].text}>", nodes[1].text]
    assert all(secret.secret not in node.text for node in nodes)
    assert not any("token ids" in note.what for note in found.remarks)
