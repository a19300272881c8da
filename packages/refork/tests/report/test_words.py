import math

import pytest

from refork.report import sentences, words
from refork.report.data import Cliff, EffectData, Gain, RateData
from refork.report.diff import short_pieces


def plain(text):
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0.0, "0 %"), (1.0, "100 %"), (0.582, "58 %"), (0.004, "0.4 %"),
        (0.996, "99.6 %"), (0.01, "1 %"), (0.00001, "< 0.1 %"),
        (0.0001, "< 0.1 %"), (0.0006, "0.1 %"), (0.9994, "99.9 %"), (0.9999, "> 99.9 %"), (math.nan, "–"),
        (1 - 1e-15, "100 %"), (-0.0001, "0.0 %"),
    ],
)  # fmt: skip
def test_rates(value, shown):
    assert plain(words.rate(value)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0.27, "+27 points"), (-0.27, "−27 points"), (0.0, "0 points"), (0.01, "+1 point"),
        (-0.01, "−1 point"), (0.004, "+0.4 points"),
    ],
)  # fmt: skip
def test_points(value, shown):
    assert plain(words.points(value)) == shown


def test_figures_of_each_kind():
    assert plain(words.span(0.18, 0.36)) == "18 to 36 %"
    assert plain(words.span(-0.05, 0.36, sign=True)) == "−5 to +36"
    assert words.span(None, 0.36) == words.span(0.1, math.nan) == words.mean(math.nan) == "–"
    assert plain(words.span(0.0001, 0.9999)) == "< 0.1 to > 99.9 %"
    assert plain(words.span(-0.0001, 0.0001, sign=True)) == "0.0 to 0.0"
    assert words.points(math.nan) == "–"
    assert words.span(-1.234, 2.0, "mean", sign=True) == "−1.23 to +2"
    assert plain(words.p_value(0.0004)) == "p < 0.001"
    assert plain(words.p_value(0.0312)) == "p = 0.031"
    assert plain(words.p_value(0.0312, bare=True)) == "0.031"
    assert words.p_value(None) == words.count(None) == words.duration(None) == words.mean(None) == "–"
    assert plain(words.duration(3.21)) == "3.2 s"
    assert plain(words.duration(59.7)) == "1 min 00 s"
    assert plain(words.duration(134.2)) == "2 min 14 s"
    assert words.count(1234567) == "1,234,567"
    assert plain(words.value_of(0.5, "rate")) == "50 %"
    assert words.change_of(0.5, "mean") == "+0.5"


def test_tokens_as_words():
    assert [words.token_text(t) for t in (" east", "\n", " ", "", "\t")] == ["east", "↵", "␣", "∅", "⇥"]
    assert words.one_line("a  b\nc", 4) == "a b…"


BEFORE, AFTER = RateData(rate=0.31), RateData(rate=0.61)


@pytest.mark.parametrize(
    ("low", "high", "said", "head"),
    [
        (0.22, 0.38, "rose from 31 % to 61 %: +30 points", "rose"),
        (-0.38, -0.22, "fell from 31 % to 61 %", "fell"),
        (-0.1, 0.38, "does not show a change", "within chance"),
    ],
)
def test_the_gain_is_claimed_only_where_its_interval_backs_it(low, high, said, head):
    gain = Gain(difference=0.30, low=low, high=high, n=200)
    assert said in plain(sentences.gain_sentence(BEFORE, AFTER, gain))
    assert head in sentences.headline(BEFORE, AFTER, gain)


def test_a_gain_without_figures_says_so():
    assert "no interval" in sentences.gain_sentence(BEFORE, AFTER, None)
    assert "not measured" in sentences.gain_sentence(RateData(), AFTER, None)
    assert sentences.headline(None, AFTER, None) is None
    assert sentences.headline(BEFORE, AFTER, None).endswith("61\u00a0%")


def test_cliffs():
    cliff = Cliff(token_index=3, text=" east", before=0.71, after=0.12)
    assert (
        plain(sentences.cliff_sentence(cliff))
        == "After “east” the chance of success falls from 71 % to 12 %."
    )
    assert "No single token" in sentences.cliff_sentence(None)
    assert "No single token" in sentences.cliff_sentence(
        Cliff(token_index=3, text="a", before=0.1, after=0.2)
    )
    assert "not computed" in sentences.cliff_sentence(Cliff(token_index=3, text="a"))


def test_effects():
    effect = EffectData(
        what="remove 1 token", base=BEFORE, other=AFTER, difference=0.3, low=0.1, high=0.4, paired=True
    )
    said = plain(sentences.effect_sentence(effect))
    assert (
        said
        == "Remove 1 token: this raises success from 31 % to 61 %, +30 points (95 % interval +10 to +40)."
    )
    unclear = EffectData(what="x", base=BEFORE, other=AFTER, difference=0.3, low=-0.1, high=0.4)
    assert "no effect is shown" in sentences.effect_sentence(unclear)
    assert "lowers" in sentences.effect_sentence(
        EffectData(what="x", base=BEFORE, other=AFTER, difference=-0.3, low=-0.4, high=-0.2)
    )
    assert "not computed" in sentences.effect_sentence(EffectData(what="x"))
    assert "no interval" in sentences.effect_sentence(EffectData(what="x", base=BEFORE, other=AFTER))


def test_how_the_arms_were_paired():
    effect = EffectData(what="x", paired=True, method="m", unpaired_low=-0.1, unpaired_high=0.5)
    said = plain(sentences.pairing_sentence(effect))
    assert said == (
        "Draw by draw with the same noise in both arms. Interval and test: m. "
        "Without pairing the interval would be −10 to +50."
    )
    assert "not paired" in sentences.pairing_sentence(EffectData(what="x", paired=False))
    assert sentences.pairing_sentence(EffectData(what="x")) == ""


def test_long_texts_are_cut_where_they_are_equal_and_stay_quick():
    same = "word " * 50_000
    old, new = short_pieces(same + "east", same + "west")
    assert "".join(p.text for p in old).endswith("east")
    assert sum(len(p.text) for p in old) < 200
    old, new = short_pieces("a " * 4000, "b " * 4000)
    assert sum(len(p.text) for p in (*old, *new)) < 1400
