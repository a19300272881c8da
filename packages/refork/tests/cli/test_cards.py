import io

import pytest
from rich.console import Console

from refork.cli.cards import effect_card, interval_line, trace_strip
from refork.cli.live import LiveProgress
from refork.cli.screen_console import SafeConsole
from refork.errors import BadInput
from refork.progress import Progress, waits

EFFECT = {
    "what": "remove 1 token",
    "before_text": "go south; go east",
    "after_text": "go south; go",
    "score": "success",
    "base": {"rate": 0.109, "low": 0.054, "high": 0.209},
    "other": {"rate": 0.656, "low": 0.534, "high": 0.76},
    "difference": 0.547,
    "low": 0.4,
    "high": 0.66,
    "level": 0.95,
    "p": 3.2e-8,
    "method": "Newcombe",
    "paired": True,
    "draws": 64,
    "ungraded": 0,
    "tokens": 2318,
    "seconds": 3.4,
}
TRACE = {
    "steps": [
        {"kind": "task", "text": "Find the key.", "tokens": []},
        {
            "kind": "action",
            "text": "go east\n",
            "tokens": [
                {"text": "go", "index": 0, "value": 0.7, "n": 64},
                {"text": " east", "index": 1, "value": 0.71, "n": 64},
                {"text": "\n", "index": 2, "value": None, "n": 0},
                {"text": "end", "index": 3, "value": 0.12, "n": 64},
            ],
        },
    ],
    "outcome": 0.0,
    "cliff": {"token_index": 1, "text": " east", "before": 0.71, "after": 0.12},
}


def shown(renderable, width=100, colour=False):
    out = io.StringIO()
    system = "truecolor" if colour else None
    SafeConsole(file=out, width=width, force_terminal=colour, color_system=system).print(renderable)
    return out.getvalue().replace("\u00a0", " ")


def test_the_effect_card_says_what_the_change_does_and_draws_it():
    text = shown(effect_card(EFFECT))
    lines = " ".join(text.replace("│", " ").split())
    assert (
        "Remove 1 token: this raises success from 11 % to 66 %, +55 points (95 % interval +40 to +66)."
        in lines
    )
    assert "p < 0.001 · 64 draws per arm · 0 not graded · 2,318 tokens · 3.4 s" in lines
    assert text.count("●") == 3
    assert "┊" in text
    assert "same noise in both arms" in text


@pytest.mark.parametrize("width", [40, 58, 72, 80, 120])
def test_cards_fit_every_terminal(width):
    for card in (effect_card(EFFECT), trace_strip(TRACE)):
        assert max(len(line) for line in shown(card, width).splitlines()) <= width
    text = shown(effect_card(EFFECT), width)
    assert "…" not in text or width < 50


def test_figures_never_computed_are_dashes():
    text = shown(effect_card({"what": "remove", "ungraded": 0}))
    assert "– draws per arm · 0 not graded · – tokens · –" in text
    assert "●" not in text


def test_means_are_not_percentages():
    arms = {"base": {"rate": 12.5, "low": 11, "high": 14}, "other": {"rate": 15, "low": 13, "high": 17}}
    text = shown(
        effect_card({**EFFECT, **arms, "difference": 2.5, "low": 1.0, "high": 4.0, "score": "reward"})
    )
    assert "raises reward from 12.5 to 15" in text
    assert "points" not in text


def test_what_is_no_effect_is_refused():
    with pytest.raises(BadInput, match="base"):
        effect_card({**EFFECT, "base": "high"})
    with pytest.raises(BadInput, match="index"):
        trace_strip({"steps": [{"kind": "action", "text": "", "tokens": [{"text": "a"}]}]})


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((0.5, 0.0, 1.0, (0, 1), 11), "├────●────┤"),
        ((None, None, None, (0, 1), 5), "     "),
        ((0.0, 0.0, 0.0, (0, 1), 3), "●  "),
        ((0.5, 0.4, 9.0, (0, 1), 5), "  ●─┤"),
        ((0.5, 0.4, 0.6, (0, 1), 0), ""),
    ],
)
def test_intervals_as_text(arguments, line):
    assert interval_line(*arguments) == line


def test_zero_is_marked_in_and_beside_an_interval():
    assert interval_line(0.6, 0.4, 0.8, (-1, 1), 11, zero=True) == "     ┊ ├●┤ "
    assert interval_line(0.6, -0.4, 0.8, (-1, 1), 11, zero=True) == "   ├─┼──●┤ "


def test_the_trace_marks_its_cliff_without_colours():
    text = shown(trace_strip(TRACE))
    assert "After “east” the chance of success falls from 71 % to 12 %." in text
    assert "go east ▼71 %→12 % ↵end" in text
    assert "▆▆ ▂" in text
    assert "success 0 %" in text


def test_tokens_are_coloured_by_their_value():
    text = shown(trace_strip(TRACE), colour=True)
    assert "48;2;" in text


def test_control_characters_and_markup_of_models_are_shown_plainly():
    steps = [{"kind": "action", "text": "", "tokens": [{"text": "[red]\x1b[2J", "index": 0, "value": 0.5}]}]
    text = shown(trace_strip({"steps": [*steps, {"kind": "observation", "text": "[bold]\x1b]0;x"}]}))
    assert "[red]␛[2J" in text
    assert "[bold]␛]0;x" in text
    assert "\x1b" not in text
    assert "\x1b" not in shown(effect_card({**EFFECT, "what": "\x1b[2J[red]", "before_text": "\x1b[2J"}))


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def off_terminal():
    out, clock = io.StringIO(), Clock()
    return out, clock, LiveProgress(Console(file=out, width=120), clock=clock)


def test_live_progress_is_the_progress_seam():
    out = io.StringIO()
    seam: Progress = LiveProgress(Console(file=out))
    seam("grow", 0, 1)
    assert "grow" in out.getvalue()


def test_off_a_terminal_lines_are_few():
    out, clock, live = off_terminal()
    with live:
        for i in range(101):
            clock.now = i * 0.3
            live("grow [tasks]", i, 100, tokens=i * 90)
        live("train", 0, 0, waiting="the server (429)")
    assert out.getvalue().splitlines() == [
        "grow [tasks]: 0/100",
        "grow [tasks]: 34/100, 300 tok/s, 0:10",
        "grow [tasks]: 68/100, 300 tok/s, 0:20",
        "grow [tasks]: 100/100, 300 tok/s, 0:30",
        "train, waiting: the server (429)",
    ]


def test_stages_that_take_turns_do_not_flood_the_log():
    out, _, live = off_terminal()
    with live:
        for i in range(50):
            live("grow", i, 50)
            live("train", i, 50)
    assert len(out.getvalue().splitlines()) == 2


def test_a_stage_that_begins_again_counts_from_there():
    out, clock, live = off_terminal()
    live("update", 5, 5, tokens=100)
    clock.now = 20
    live("update", 0, 5, tokens=0)
    clock.now = 30
    live("update", 5, 5, tokens=50)
    assert out.getvalue().splitlines() == ["update: 5/5", "update: 0/5", "update: 5/5, 5 tok/s, 0:10"]


def test_a_wait_without_a_stage_shows_on_the_stage_under_way():
    out, _, live = off_terminal()
    wait = waits(live)
    live("grow", 3, 8)
    wait("the server: 429, waiting 2 s")
    wait("the server: 429, waiting 4 s")
    live("grow", 4, 8)
    assert out.getvalue().splitlines() == [
        "grow: 3/8",
        "grow: 3/8, waiting: the server: 429, waiting 2 s",
    ]


def terminal():
    out = io.StringIO()
    return out, LiveProgress(Console(file=out, force_terminal=True, width=110))


def test_on_a_terminal_bars_are_drawn_and_the_cursor_comes_back():
    out, live = terminal()
    with live:
        live("grow [tasks]", 1, 2, tokens=0)
        live("grow [tasks]", 2, 2, tokens=900, waiting="nothing [x]")
    live.close()
    text = out.getvalue()
    assert "grow [tasks]" in text
    assert "2/2" in text
    assert "waiting: nothing [x]" in text
    assert text.rstrip().endswith("\x1b[?25h")


def test_an_interrupt_passes_through_and_leaves_a_clean_terminal():
    out, live = terminal()

    def work():
        with live:
            live("grow", 1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert "stopped" in out.getvalue()
    assert out.getvalue().rstrip().endswith("\x1b[?25h")


def test_a_change_that_leaves_nothing_says_nothing():
    assert "+ nothing" in shown(effect_card({**EFFECT, "after_text": ""}))
