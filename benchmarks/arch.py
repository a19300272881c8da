"""Architectures: does every causal model that the installed transformers can build give its own log-probs?

A tiny random model of each (windows and chunks far shorter than the sequences) is opened as a policy opens
it. What it then draws in a batch of unequal lengths, branches of one prefix among them, and what it scores is
held against plain forward passes over each sequence alone, without a cache; and draws alone against draws in
company. An architecture is *right* (its branches are packed), *slow* (it runs by its own forward pass) or
*refused* by name; *silently wrong* and *raw errors* are what must not be. The comparison is not that of the
opening check: it takes other sequences, asks for the distribution of a token from the tokens before it alone,
and knows nothing of verdicts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parts.architectures import COMPOSITE, VOCABULARY, build, kinds
from refork.decoding.opening import open_decoder
from refork.decoding.score import score
from refork.errors import ReforkError
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
QUICK = (
    "llama", "gemma2", "gpt2", "falcon", "phi3, longrope", "llama4_text", "gpt_oss", "diffllama", "mamba",
    "bloom", "bart", "axk2", "xlm",
)  # fmt: skip
DRAWN, NEAR = 6, 1e-4
"""Tokens of each draw, and by which share of the range of a distribution log-probs may differ."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one architecture; ``difference`` in nats."""

    name: str
    status: str
    difference: float | None = None
    why: str = ""


def prompts() -> list[NDArray[np.int32]]:
    """Lengths around windows of 12 and blocks of 64, two branches of a prefix, and one that parts from it."""
    rng = np.random.default_rng(5)
    base = rng.integers(3, VOCABULARY, 150).astype(np.int32)
    other = rng.integers(3, VOCABULARY, 40).astype(np.int32)
    return [base[:3], base[:17], base[:70], base[:70], np.concatenate([base[:33], other]), other[:13], base]


def own_logprobs(model: Any, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """Log-probs [vocabulary] behind some tokens, by one plain forward pass over these and nothing else."""
    with torch.no_grad():
        ids = torch.from_numpy(tokens.astype(np.int64))[None].to(model.device)
        logits = model(input_ids=ids).logits[0, -1]
    return np.asarray(torch.log_softmax(logits.double(), dim=-1).cpu().numpy())


def judge(name: str, device: str = "cpu") -> Row:
    """Open and check one architecture, on a device."""
    try:
        model = build(name).to(device)
        with torch.no_grad():
            model(input_ids=torch.arange(3, 43, device=device)[None])
    except Exception as error:  # whatever the model's own code raises
        why = (str(error).strip().splitlines() or [""])[0][:110]
        return Row(name, "not built", why=f"{type(error).__name__}: {why}")
    try:
        decoder, opening = open_decoder(model)
        worst, wide, same = check(model, decoder)
    except ReforkError as error:
        return Row(name, "refused", why=error.what)
    except Exception as error:  # that is the finding
        return Row(name, "raw error", why=f"{type(error).__name__}: {error}"[:200])
    if not same:
        return Row(name, "silently wrong", worst, "a draw depends on the draws beside it")
    if not worst <= NEAR * wide:
        return Row(name, "silently wrong", worst, f"opened as {opening.path}")
    status = "slow" if opening.slow else "right"
    return Row(name, status, worst, (opening.why or "") + (" (no cache)" if opening.path == "anew" else ""))


def check(model: Any, decoder: Any) -> tuple[float, float, bool]:
    """The largest difference to plain passes, the log-probs' range, and whether draws alone are the same."""
    asked = prompts()
    noise = [NoiseKey(11, 3, i) for i in range(len(asked))]
    settings = Sampling(max_tokens=DRAWN)
    drawn = {item.index: item for item in decoder.sample(asked, noise, settings)}
    worst = wide = 0.0
    whole = []
    for index, prompt in enumerate(asked):
        item = drawn[index]
        tokens = np.concatenate([prompt, item.tokens]).astype(np.int32)
        whole.append(tokens)
        for place, said in enumerate(item.tokens):
            truth = own_logprobs(model, tokens[: len(prompt) + place])
            wide = max(wide, float(np.ptp(truth[np.isfinite(truth)])))
            worst = max(worst, abs(float(truth[said]) - float(item.logprobs_t1[place])))
    for tokens, scores in zip(whole, score(decoder, whole), strict=True):
        for place in {0, 10, 12, 13, 19, 21, 40, 64, 65, len(tokens) - 2}:
            if place < len(scores):
                truth = own_logprobs(model, tokens[: place + 1])
                worst = max(worst, abs(float(truth[tokens[place + 1]]) - float(scores[place])))
    same = True
    for index in (2, 6):
        [alone] = decoder.sample([asked[index]], [noise[index]], settings)
        same = same and np.array_equal(alone.tokens, drawn[index].tokens)
    return worst, wide, same


def table(rows: list[Row]) -> str:
    """The rows as a table of Markdown."""
    lines = [
        "| architecture | how it runs | largest difference (nats) | why not packed |",
        "|---|---|---|---|",
    ]
    words = {"right": "fast", "slow": "slow"}
    for row in rows:
        if row.status != "not built":
            found = "" if row.difference is None else f"{row.difference:.0e}"
            why = row.why.replace("|", "/").replace("\n", " ").replace("<", "&lt;")
            lines.append(f"| {row.name} | {words.get(row.status, row.status)} | {found} | {why} |")
    return "\n".join(lines) + "\n"


def counts(rows: list[Row]) -> dict[str, int]:
    """The figures."""
    tried = [row for row in rows if row.status != "not built"]
    found = {"architectures": len(tried)}
    for status in ("right", "refused", "slow", "silently wrong", "raw error"):
        name = {"raw error": "raw_errors"}.get(status, status.replace(" ", "_"))
        found[name] = sum(row.status == status for row in tried)
    return found


def page(rows: list[Row]) -> str:
    """The page with the table in it."""
    import transformers

    text = PAGE.read_text()
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    found = counts(rows)
    said = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in found.items())
    missing = "; ".join(f"{row.name} ({row.why})" for row in rows if row.status == "not built")
    return (
        f"{head}{BEGIN}\nMade by `python benchmarks/arch.py --write` with transformers "
        f"{transformers.__version__}: {said}.\n\n{table(rows)}\n"
        f"Not built: {missing.replace('<', '&lt;').replace('|', '/')}.\n\nConfigs that join several models: "
        f"{', '.join(sorted(COMPOSITE))}.\n\n{END}{tail}"
    )


def main() -> None:
    """Judge every architecture, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"{len(QUICK)} of them, within 50 s on 2 cores")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    asked = parser.parse_args()
    names: list[str] = asked.names or (list(QUICK) if asked.quick else kinds())
    if asked.quick:
        print(f"a part only: {len(QUICK)} of {len(kinds())} architectures and variants")
    rows: list[Row] = []
    for name in names:
        began = time.monotonic()
        rows.append(judge(name))
        print(json.dumps(asdict(rows[-1]) | {"seconds": round(time.monotonic() - began, 1)}), flush=True)
    print(table(rows))
    if asked.write:
        PAGE.write_text(page(rows))
    print(json.dumps(counts(rows)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        # Verdicts of an earlier run must not stand in for comparisons.
        os.environ["REFORK_HOME"] = home
        main()
