"""A chest of drawers as an environment, and tiny models with random weights that simulate it."""

import torch

from refork.policies.local import LocalPolicy
from refork.worlds.environment import Brief, EnvTrajectory, Transition
from refork_testbed.models.recipe import Shape
from refork_testbed.models.supervised import new_model
from refork_testbed.models.tokenizer import make_tokenizer

COLOURS = ("red", "blue", "green", "pink")
WORDS = (*COLOURS, "look", "drawer", "a", "b", "prediction", "think", "initial", "state", "</", "><", "></")


def trajectory(number, source="drawers", turns=2, split=None):
    """Two drawers with a colour each; looking into one shows it."""
    held = {"a": COLOURS[number % 4], "b": COLOURS[(number // 4) % 4]}
    seen = [Transition(f"look {n}", held[n], True, f"drawer {n}") for n in ("a", "b") * turns][:turns]
    state = " ".join(f"{name} {colour}" for name, colour in held.items())
    task = {"task": f"{source}-{number}"}
    return EnvTrajectory(
        id=str(number), source=source, brief=Brief(initial_state=state), turns=tuple(seen),
        domain="tools", split=split, extra=task,
    )  # fmt: skip


def tiny(seed=0, template=True, context=96):
    """A two-layer transformer with random weights."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(WORDS, context)
    if not template:
        tokenizer.chat_template = None
    shape = Shape(layers=2, width=32, heads=2, hidden=48, context=context)
    return LocalPolicy(new_model(shape, tokenizer).eval(), tokenizer, name=f"tiny-{seed}")
