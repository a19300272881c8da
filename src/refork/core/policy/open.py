"""Policies by name, as the command line and recipes write them.

=====================================  ==============================================================
``hf:DIR-or-hub-id``                   a local Hugging Face causal language model
``hf:DIR+adapter=DIR2+device=cuda``    with a PEFT adapter; ``reference``, ``dtype``, ``forward`` alike
``openai:URL#MODEL``                   a model on an OpenAI-compatible server
``openai:URL#MODEL+tokenizer=DIR``     with its tokenizer, for text and messages
``organism:NAME``                      a tiny model with a recipe in this package, built where it is not
``scripted:NAME``                      a shipped fake: coin, greeter, lock, miniapps, refuser-p, ..., walker
``scripted:motive-NAME[@SCENE]``       an agent with a known motive (tedium, malign-twin, ...)
``scripted:specialist@I``              worker I (0 to 3) of the specialists world
``scripted:rule-agent[@ERROR]``        obeys the house rules that it sees, but for a share of errors
``scripted:babyai-bot[@ERROR]``        BabyAI's own expert, but for a share of errors
=====================================  ==============================================================

``organism`` is no kind of its own but a name that stands for another. Packages add such names as entry points
of the group ``refork.policy_names``: functions of what follows the colon and of a progress.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final, Literal

from refork.core.errors import BadInput
from refork.core.policy.base import Policy
from refork.core.policy.scripted import Law, ScriptedPolicy
from refork.core.run.progress import Progress, silent

GRAMMAR = "hf:DIR[+adapter=DIR], organism:NAME, openai:URL#MODEL[+tokenizer=DIR] or scripted:NAME"
NAMES: Final = "refork.policy_names"

_OPTIONS = {
    "hf": ("adapter", "reference", "dtype", "device", "name", "forward"),
    "openai": ("api_key", "tokenizer", "concurrency", "timeout", "patience", "price", "sleep"),
    "scripted": (),
}
#: What may be written into the name itself; keys may not, since names are recorded and shown.
_INLINE = {
    "hf": ("adapter", "reference", "dtype", "device", "forward"),
    "openai": ("tokenizer", "concurrency", "timeout"),
    "scripted": (),
}
_READ: dict[str, Callable[[str], Any]] = {"concurrency": int, "timeout": float}


def open_policy(spec: str, *, on_wait: Callable[[str], None] | None = None, **options: Any) -> Policy:
    """The policy that a name stands for; options win over what the name says.

    ``on_wait`` hears, from any thread, what a server's calls wait for, and why a local model is slow.

    Raises:
        BadInput: the name does not follow the grammar, or an option is not known for its kind.
    """
    kind, rest, inline = parse_spec(spell(spec))
    unknown = sorted(set(options) - set(_OPTIONS[kind]))
    if unknown:
        known = ", ".join(_OPTIONS[kind]) or "none"
        raise BadInput(f"{kind} policies have no option {unknown[0]!r}", where=spec, hint=f"options: {known}")
    merged = inline | {name: value for name, value in options.items() if value is not None}
    if kind == "scripted":
        return scripted(rest)
    if kind == "openai":
        from refork.core.policy.remote import RemotePolicy

        url, _, model = rest.partition("#")
        return RemotePolicy(url, model, on_wait=on_wait, **merged)
    from refork.core.policy.local import LocalPolicy

    return LocalPolicy.load(rest, on_slow=on_wait, **merged)


def spell(spec: str, progress: Progress = silent) -> str:
    """The name that a name stands for, itself where it stands for none.

    ``organism:NAME`` becomes ``hf:DIR``, the folder of that very build, so that a recipe which keeps it is
    resumed with the same weights. ``progress`` is told of what has to be made for it.
    """
    kind, colon, rest = spec.partition(":")
    if not (kind and colon and rest) or kind in _OPTIONS:
        return spec
    for added in entry_points(group=NAMES, name=kind):
        return str(added.load()(rest, progress))
    return spec


def parse_spec(spec: str) -> tuple[str, str, dict[str, Any]]:
    """Kind, what follows it, and the options written into a policy's name.

    Raises:
        BadInput: the name does not follow the grammar.
    """
    kind, colon, rest = spec.partition(":")
    if not colon or kind not in _OPTIONS or not rest:
        raise BadInput(f"{spec!r} names no policy", hint=f"write {GRAMMAR}")
    parts = re.split(r"\+(?=[a-z_]+=)", rest)
    inline: dict[str, Any] = {}
    for part in parts[1:]:
        name, _, value = part.partition("=")
        if name not in _INLINE[kind]:
            known = ", ".join(_INLINE[kind]) or "none"
            raise BadInput(
                f"{name!r} cannot be written into the name of an {kind} policy",
                hint=f"options there: {known}",
            )
        try:
            inline[name] = _READ.get(name, str)(value)
        except ValueError:
            raise BadInput(f"{name} is {value!r}; it must be a number", where=f"{kind} policy") from None
    if kind == "openai" and not all(parts[0].partition("#")):
        raise BadInput(
            "an openai policy needs an address and a model", hint="write openai:http://HOST:PORT/v1#MODEL"
        )
    return kind, parts[0], inline


def scripted(name: str) -> ScriptedPolicy:
    """One of the shipped scripts.

    ``coin`` says heads (0.6), tails (0.3) or nothing (0.1); ``greeter`` gives one of three replies;
    ``lock`` plays the lock world with the known law; ``miniapps`` works in the five apps and slips at its
    usual rates; ``walker`` takes a random exit of a maze; ``refuser-p``, ``refuser-d`` and ``refuser-c``
    answer the requests of the refusal worlds by the planted laws P, D and C.
    ``motive-NAME`` is an agent with a planted motive, in its own scene or another: ``motive-malign@hook``.
    ``specialist@I`` answers the specialists world's questions with worker I's planted skill.
    ``repairer`` mends the repair world's functions with chance 0.4, ``repairer@0.7`` with another.
    ``rule-agent`` obeys the house rules that stand in its context word for word; ``rule-agent@0.1`` errs.
    ``babyai-bot`` solves BabyAI's missions; ``babyai-bot@0.1`` errs.

    Raises:
        BadInput: there is no such script.
    """
    if name.startswith("motive-"):
        from refork.core.world.motives.agents import find_agent

        who, _, scene = name.removeprefix("motive-").partition("@")
        return find_agent(who, scene or None).policy()
    kind, _, number = name.partition("@")
    if kind in _WITH_NUMBER:
        return _WITH_NUMBER[kind](number)
    if name not in _SCRIPTS:
        known = ", ".join(sorted([*_SCRIPTS, *_WITH_NUMBER, "motive-NAME"]))
        raise BadInput(f"there is no script {name!r}", hint=f"scripts: {known}")
    return _SCRIPTS[name]()


def _coin() -> ScriptedPolicy:
    toss = {" heads": 0.6, " tails": 0.3, "": 0.1}
    end = {"": 1.0}
    return ScriptedPolicy.from_chain({"": toss, " heads": end, " tails": end}, name="scripted:coin")


def _greeter() -> ScriptedPolicy:
    replies = {"Hello, how are you?": 2.0, "Hello there.": 1.0, "Good morning.": 1.0}
    return ScriptedPolicy.from_replies(replies, name="scripted:greeter")


def _lock() -> ScriptedPolicy:
    from refork.core.world.lock import lock_law

    return ScriptedPolicy.from_text(lock_law, name="scripted:lock")


def _refuser(rule: Literal["P", "D", "C"]) -> ScriptedPolicy:
    from refork.core.world.refusal import RefusalLaw, refusal_policy

    return refusal_policy(RefusalLaw(rule))


def _rule_agent(error: str) -> ScriptedPolicy:
    from refork.core.world.house_rules.agents import RuleAgent

    try:
        return RuleAgent(error=float(error or 0.0)).policy()
    except ValueError:
        raise BadInput(f"{error!r} is no share of errors", hint="scripted:rule-agent@0.1") from None


def _specialist(number: str) -> ScriptedPolicy:
    from refork.core.world.specialists import specialist

    return specialist(int(number) if number.isdigit() else -1)


def _repairer(gold: str) -> ScriptedPolicy:
    from refork.core.world.repair.repairer import Skill, repairer

    try:
        return repairer(Skill(gold=float(gold)) if gold else None, name=f"scripted:repairer@{gold or 0.4}")
    except ValueError:
        raise BadInput(f"{gold!r} is no chance", hint="scripted:repairer@0.7") from None


def _babyai_bot(error: str) -> ScriptedPolicy:
    from refork.core.world.adapters.minigrid_bot import babyai_bot

    try:
        return babyai_bot(float(error or 0.0))
    except ValueError:
        raise BadInput(f"{error!r} is no share of errors", hint="scripted:babyai-bot@0.1") from None


def _miniapps() -> ScriptedPolicy:
    from refork.core.world.miniapps import Agent, agent_policy

    return agent_policy(Agent(), name="scripted:miniapps")


def _walker() -> ScriptedPolicy:
    words = ("go", " in", " out", " edge", " branch")
    return ScriptedPolicy.from_text(walker_law, words, name="scripted:walker")


_SCRIPTS: dict[str, Callable[[], ScriptedPolicy]] = {
    "coin": _coin,
    "greeter": _greeter,
    "lock": _lock,
    "miniapps": _miniapps,
    "refuser-c": partial(_refuser, "C"),
    "refuser-d": partial(_refuser, "D"),
    "refuser-p": partial(_refuser, "P"),
    "walker": _walker,
}


def walker_law(text: str) -> Law:
    """The next piece of ``go EXIT``, every exit of the last line that lists some being equally likely."""
    before, _, said = text.rpartition("\n")
    listed = before.rpartition("exits ")[2].partition("\n")[0] if "exits " in before else "out"
    actions = [f"go {found}" for found in re.findall(r"in|out|edge \d+|branch \d+", listed)]
    fitting = [action for action in actions if action.startswith(said)]
    law: dict[str, float] = {}
    for action in fitting:
        found = re.match(r"\s?[a-z]+|\s|\d", action[len(said) :])
        piece = found.group() if found else ""
        law[piece] = law.get(piece, 0.0) + 1.0 / len(fitting)
    return law or {"": 1.0}


#: Scripts that a number may follow, behind an @.
_WITH_NUMBER: dict[str, Callable[[str], ScriptedPolicy]] = {
    "babyai-bot": _babyai_bot,
    "repairer": _repairer,
    "rule-agent": _rule_agent,
    "specialist": _specialist,
}
