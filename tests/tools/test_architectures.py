"""The page about architectures says what a tiny model of each kind is found to be; a part of it is here."""

import re

import pytest

from support.toolbox import load_benchmark

arch = load_benchmark("arch")


def shown():
    """How the page says that each architecture runs."""
    rows = re.findall(
        r"^\| ([^|]+) \| (fast|slow|refused|[a-z ]+) \| ([^|]*) \|", arch.PAGE.read_text(), re.M
    )
    return {name: (status, difference.strip()) for name, status, difference in rows}


def test_the_page_lists_every_kind_and_nothing_wrong():
    import transformers

    rows = shown()
    assert {"silently wrong", "raw error"}.isdisjoint(status for status, _ in rows.values())
    text = arch.PAGE.read_text()
    assert f"transformers {transformers.__version__}" in text
    missing = [kind for kind in arch.kinds() if kind not in rows and f"{kind} (" not in text]
    assert not missing


@pytest.mark.parametrize("name", arch.QUICK)
def test_a_representative_part_is_what_the_page_says(name, monkeypatch, tmp_path):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    row = arch.judge(name)
    assert row.status in ("right", "slow", "refused"), row.why
    assert shown()[name][0] == {"right": "fast"}.get(row.status, row.status)


def test_what_differs_is_found(monkeypatch):
    """The judge takes no decoder's word: one that is a hundredth of a nat off is called wrong."""
    plain = arch.own_logprobs
    monkeypatch.setattr(arch, "own_logprobs", lambda model, tokens: plain(model, tokens) + 0.01)
    assert arch.judge("llama").status == "silently wrong"
    monkeypatch.setattr(arch, "open_decoder", lambda model: 1 / 0)
    assert arch.judge("llama").status == "raw error"
