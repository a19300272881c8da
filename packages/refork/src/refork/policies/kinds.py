"""The shipped kinds of policies, and the scripts of no world. What is heavy is imported when one opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from refork.errors import BadInput
from refork.policies.base import Policy
from refork.policies.scripted import ScriptedPolicy, bare

#: Marks an option, ``Annotated[str, UNWRITTEN]``, that a caller may give but no name may hold.
UNWRITTEN: Final = "unwritten"

OnWait = Annotated[Callable[[str], None] | None, UNWRITTEN]


def open_hf(
    rest: str,
    *,
    adapter: str | None = None,
    reference: Any = None,
    dtype: str = "float32",
    device: str = "cpu",
    name: Annotated[str | None, UNWRITTEN] = None,
    forward: Any = "auto",
    on_wait: OnWait = None,
) -> Policy:
    """``hf:DIR[+adapter=DIR]``: a local Hugging Face causal language model, or one of its hub."""
    from refork.policies.local import LocalPolicy

    return LocalPolicy.load(
        rest, adapter=adapter, reference=reference, dtype=dtype, device=device, name=name, forward=forward,
        on_slow=on_wait,
    )  # fmt: skip


def open_openai(
    rest: str,
    *,
    api_key: Annotated[str | None, UNWRITTEN] = None,
    tokenizer: Any = None,
    concurrency: int = 8,
    timeout: float = 120.0,
    patience: Annotated[Any, UNWRITTEN] = None,
    price: Annotated[tuple[float, float] | None, UNWRITTEN] = None,
    sleep: Annotated[Callable[[float], object] | None, UNWRITTEN] = None,
    on_wait: OnWait = None,
) -> Policy:
    """``openai:URL#MODEL[+tokenizer=DIR]``: a model on an OpenAI-compatible server."""
    if not all(rest.partition("#")):
        raise BadInput(
            "an openai policy needs an address and a model", hint="write openai:http://HOST:PORT/v1#MODEL"
        )
    from refork.policies.remote import RemotePolicy

    url, _, model = rest.partition("#")
    return RemotePolicy(
        url, model, api_key, tokenizer=tokenizer, concurrency=concurrency, timeout=timeout,
        patience=patience, price=price, sleep=sleep, on_wait=on_wait,
    )  # fmt: skip


def open_scripted(rest: str) -> ScriptedPolicy:
    """``scripted:NAME[@ARGUMENT]``: a shipped or installed fake whose chances are known."""
    from refork.policies.open import scripted

    return scripted(rest)


def coin(argument: str) -> ScriptedPolicy:
    """``coin``: says heads (0.6), tails (0.3) or nothing (0.1)."""
    bare("coin", argument)
    toss = {" heads": 0.6, " tails": 0.3, "": 0.1}
    end = {"": 1.0}
    return ScriptedPolicy.from_chain({"": toss, " heads": end, " tails": end}, name="scripted:coin")


def greeter(argument: str) -> ScriptedPolicy:
    """``greeter``: gives one of three replies."""
    bare("greeter", argument)
    replies = {"Hello, how are you?": 2.0, "Hello there.": 1.0, "Good morning.": 1.0}
    return ScriptedPolicy.from_replies(replies, name="scripted:greeter")
