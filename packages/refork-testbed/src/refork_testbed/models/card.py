"""The README of an organism: what it is, how it was made, how well it does."""

from __future__ import annotations

from refork.types import Json
from refork_testbed.models.recipe import AnyRecipe, Grown, Recipe, Reinforced, Staged


def card(recipe: AnyRecipe, facts: Json, weights: str) -> str:
    """Markdown text of the card."""
    if isinstance(recipe, Staged):
        made = _staged(recipe, facts)
    elif isinstance(recipe, Reinforced):
        made = _reinforced(recipe, facts)
    else:
        made = _grown(recipe, facts) if isinstance(recipe, Grown) else _supervised(recipe, facts)
    again = isinstance(recipe, Reinforced | Staged) and recipe.parent is not None
    parent = recipe.parent if isinstance(recipe, Reinforced | Staged) else None
    lines = [
        f"# {recipe.name}",
        "",
        f"A tiny language model that {recipe.summary}. "
        + (f"Made from `{parent}` by" if again else "Made from scratch by"),
        f"`refork organism build {recipe.name}`, to have something small to fork, examine and improve;",
        "it knows nothing else.",
        "",
        "## Success",
        "",
        _result_text(recipe, facts),
        "",
        "## How it was made",
        "",
        *made,
        f"- {facts['train_seconds']} seconds on {facts['threads']} thread{'s'[: facts['threads'] - 1]}"
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


def _result_text(recipe: AnyRecipe, facts: Json) -> str:
    if isinstance(recipe, Staged):
        return str(facts["staged"]["told"])
    return (
        against_distribution(facts["held_out"]) if isinstance(recipe, Grown) else success(facts["measured"])
    )


def _staged(recipe: Staged, facts: Json) -> list[str]:
    before = facts["parent_weights"]
    made = f"of `{recipe.parent}` (weights {before[:12]})" if before else "new, with planted heads"
    return [
        f"- data: {recipe.data}",
        f"- model: {made}; Llama type, {facts['shape']}, {facts['parameters']} parameters, vocabulary "
        f"{facts['vocabulary']}, all of it trained",
        f"- training: {facts['how']}, seed {recipe.seed}",
    ]


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


def _grown(recipe: Grown, facts: Json) -> list[str]:
    shape = recipe.shape
    stages = "; ".join(
        f"{stage.training.steps} steps of {stage.training.rows} conversations with {stage.layers} layers "
        f"at rate {stage.training.learning_rate}"
        for stage in recipe.stages
    )
    return [
        f"- data: {recipe.data}; {facts['tokens']} tokens trained on",
        f"- model: Llama type, {shape.layers} layers, width {shape.width}, {shape.heads} heads, "
        f"{facts['parameters']} parameters, vocabulary {facts['vocabulary']}, context {shape.context} tokens",
        f"- training: {stages}; AdamW with cosine decay, products in bfloat16, seed {recipe.seed}; between "
        "stages blocks that change nothing yet are inserted (arXiv 2401.02415)",
    ]


def against_distribution(held: Json) -> str:
    """One sentence with the loss on held-out texts and that of the law that made them."""
    return (
        f"Loss on {held['texts']} held-out texts ({held['tokens']} tokens): {held['loss']:.4f} nats per "
        f"token; the law that wrote them loses {held['law']:.4f}."
    )


def success(measured: Json | None) -> str:
    """One sentence with the measured rate and its interval."""
    if measured is None:
        return "Not measured: this organism belongs to no world."
    sampling = ", ".join(f"{k} {v}" for k, v in ({"temperature": 1.0} | measured["sampling"]).items())
    return (
        f"{measured['successes']} of {measured['tasks']} held-out tasks of `{measured['world']}` "
        f"(version {measured['version']}): {measured['rate']:.3f}, 95 % interval "
        f"[{measured['low']:.3f}, {measured['high']:.3f}] (Wilson), one rollout each, {sampling}."
    )
