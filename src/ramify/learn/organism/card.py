"""The README of an organism: what it is, how it was made, how well it does."""

from __future__ import annotations

from ramify.core.types import Json
from ramify.learn.organism.recipe import Recipe, Reinforced


def card(recipe: Recipe | Reinforced, facts: Json, weights: str) -> str:
    """Markdown text of the card."""
    again = isinstance(recipe, Reinforced)
    lines = [
        f"# {recipe.name}",
        "",
        f"A tiny language model that {recipe.summary}. "
        + (f"Made from `{recipe.parent}` by" if isinstance(recipe, Reinforced) else "Made from scratch by"),
        f"`ramify organism build {recipe.name}`, to have something small to fork, examine and improve;",
        "it knows nothing else.",
        "",
        "## Success",
        "",
        success(facts["measured"]),
        "",
        "## How it was made",
        "",
        *(_reinforced(recipe, facts) if isinstance(recipe, Reinforced) else _supervised(recipe, facts)),
        f"- {facts['train_seconds']} seconds on {facts['threads']} thread"
        + (" after its parent was there" if again else "")
        + f", torch {facts['torch']}, transformers {facts['transformers']}",
        f"- weights: sha256 {weights}",
        "",
        "On one machine with the same versions the same recipe gives the same weights, bit for bit.",
        "",
        "## Use",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("this folder")',
        'tokenizer = AutoTokenizer.from_pretrained("this folder")',
        "```",
    ]
    return "\n".join(lines) + "\n"


def _supervised(recipe: Recipe, facts: Json) -> list[str]:
    shape, training = recipe.shape, recipe.training
    return [
        f"- data: {recipe.data}; {facts['examples']} conversations, {facts['tokens']} tokens, of which "
        f"{facts['learned']} are the assistant's and learned",
        f"- model: Llama type, {shape.layers} layers, width {shape.width}, {shape.heads} heads, "
        f"{facts['parameters']} parameters, vocabulary {facts['vocabulary']}, context {shape.context} tokens",
        f"- training: {training.steps} steps of {training.rows} conversations of similar length, "
        f"AdamW, rate {training.learning_rate} with cosine decay, seed {recipe.seed}; "
        f"last loss {facts['loss']:.3f} nats per learned token",
    ]


def _reinforced(recipe: Reinforced, facts: Json) -> list[str]:
    plan = recipe.training
    return [
        f"- data: {recipe.data}; {facts['rollouts']} rollouts, {facts['tokens']} sampled tokens",
        f"- model: that of `{recipe.parent}` (weights {facts['parent_weights'][:12]}), all "
        f"{facts['parameters']} parameters trained",
        f"- training: {facts['updates']} updates of {plan.tasks} tasks x {plan.leaves} rollouts (GRPO), rate "
        f"{plan.learning_rate}, seed {plan.seed}, until {recipe.until:.0%} of an update's rollouts succeed: "
        f"{facts['success_first']:.3f} in the first, {facts['success_last']:.3f} in the last",
    ]


def success(measured: Json | None) -> str:
    """One sentence with the measured rate and its interval."""
    if measured is None:
        return "Not measured: this organism belongs to no world."
    law = ", ".join(f"{k} {v}" for k, v in ({"temperature": 1.0} | measured["sampling"]).items())
    return (
        f"{measured['successes']} of {measured['tasks']} held-out tasks of `{measured['world']}` "
        f"(version {measured['version']}): {measured['rate']:.3f}, 95 % interval "
        f"[{measured['low']:.3f}, {measured['high']:.3f}] (Wilson), one rollout each, {law}."
    )
