"""``verifiers:ENV-ID?setting=value``: environments of the ``verifiers`` library (``load_environment``).

A task is a row of the environment's dataset; held-out tasks are those of its evaluation dataset where it
has one (a training row that is also there is left out), else the rows that Refork's split holds out. A turn
is what the assistant says; where tools are offered, calls in it (``{"name": ..., "arguments": {...}}``,
alone, in a fenced block or in ``<tool_call>`` tags) are made. What the environment answers is the
observation, and the rubric's reward is given at the end: None where a reward function raised.

Options: ``turns`` (default: the environment's own limit, else 50); ``seconds`` that it may take to answer
(120); ``deterministic`` where it is known to be. All others are arguments of ``load_environment``. There are
no snapshots: an environment's state may lie anywhere in its process. A fork replays and checks.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import math
import os
import signal
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, final

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.formats.openai_chat import text_of
from refork.thoughts import without_thoughts
from refork.tool_calls import calls_in
from refork.types import Json, Message
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork.worlds.spec import Spec

_TURNS: Final = 50
_SECONDS: Final = 120.0
_OWN: dict[str, type | tuple[type, ...]] = {
    "turns": int,
    "seconds": (int, float),
    "deterministic": bool,
}


@final
class VerifiersEpisode:
    """One live rollout."""

    def __init__(self, world: VerifiersWorld, task: Task) -> None:
        self.task = task
        self._world = world
        self._rollout: Rollout | None = None
        self._tools: tuple[Json, ...] = ()
        self._turn = 0
        self._first: Observation | None = None
        self._last: Observation | None = None

    @property
    def first(self) -> Observation:
        """What the model is asked first where that is not the task's prompt; the rollout begins here."""
        if self._first is None:
            self._rollout = Rollout(self._world.env, self.task.data["row"], self._world.seconds)
            # An episode that nobody closed would leave its rollout waiting.
            weakref.finalize(self, self._rollout.close)
            event = self._rollout.begin()
            seen = self._observation(event)
            told = isinstance(event, Asked) and _texts(event.messages) == _texts(
                self.task.data["row"]["prompt"]
            )
            self._first = Observation("", seen.state_key) if told else seen
        return self._first

    def step(self, action: str) -> Observation:
        """Say it and see what the environment answers; after the end the last answer is given again."""
        before = self._last or self.first
        if before.done or self._rollout is None:
            return before
        self._turn += 1
        self._last = self._observation(
            self._rollout.answer(assistant_message(action, self._turn, bool(self._tools)))
        )
        return self._last

    def _observation(self, event: Event) -> Observation:
        if isinstance(event, Broken):
            return Observation(event.why, None, True, None, {"ungraded": event.why})
        if isinstance(event, Ended):
            return _ended(event)
        self._tools = event.tools
        if self._turn < self._world.max_turns:
            return Observation(_answer(event.messages), digest("verifiers", event.messages))
        # An environment with a loop of its own, which knows no limit, is left at ours.
        self.close()
        return Observation(_answer(event.messages), None, True, None, {"ungraded": "the turns are used up"})

    def snapshot(self) -> None:
        """None: the state may lie anywhere in the process."""
        return

    def reseed(self, seed: int) -> None:
        """An environment's chance is its own."""

    def close(self) -> None:
        """Leave the rollout."""
        if self._rollout is not None:
            self._rollout.close()


def assistant_message(action: str, turn: int, tools: bool) -> Message:
    """A policy's turn as an assistant's message, with the calls it makes where tools are offered."""
    message: Message = {"role": "assistant", "content": action}
    found = calls_in({"role": "assistant", "content": without_thoughts(action)}) if tools else []
    if not isinstance(found, list) or not found:
        return message
    message["tool_calls"] = [
        {
            "id": f"call_{turn}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for number, call in enumerate(found)
    ]
    return message


def _answer(messages: list[Json] | str) -> str:
    """What was said since the assistant's last turn; a context without one as a whole."""
    if isinstance(messages, str):
        return messages
    last = max((n for n, one in enumerate(messages) if one.get("role") == "assistant"), default=-1)
    return "\n".join(text for one in messages[last + 1 :] if (text := text_of(one)))


def _texts(prompt: Any) -> list[tuple[str, str]]:
    """Who says what, without the form that it has."""
    return [("text", prompt)] if isinstance(prompt, str) else [(one["role"], text_of(one)) for one in prompt]


def _ended(event: Ended) -> Observation:
    """The end of a rollout, with the rubric's reward."""
    out = event.output
    raw = out.get("completion") or []
    spoken = raw if isinstance(raw, str) else [plain(one) for one in raw]
    text = "" if isinstance(spoken, str) else _answer(spoken)
    info: Json = {"metrics": plain(out.get("metrics") or {})}
    if out.get("stop_condition"):
        info["stop"] = str(out["stop_condition"])
    error = out.get("error")
    why = event.failures[0] if event.failures else None
    if error:
        chain = error.get("error_chain_repr") or error.get("error") if isinstance(error, dict) else error
        why = f"the environment failed: {chain}"
    reward = math.nan if out.get("reward") is None else float(out["reward"])
    if why is None and not math.isfinite(reward):
        why = f"the rubric gave {out.get('reward')}"
    if why is not None:
        return Observation(text, None, True, None, info | {"ungraded": why})
    return Observation(text, None, True, reward, info)


@final
@dataclass(frozen=True)
class VerifiersWorld:
    """One environment; ``env`` is the library's own object."""

    id: str
    env: Any
    max_turns: int
    seconds: float = _SECONDS
    deterministic: bool = False
    query: str = ""
    _rows: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"verifiers:{self.id}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version, the library's, and that of the environment's package where it is one."""
        found = f"1+verifiers-{version('verifiers')}"
        try:
            return f"{found}+{version(self.id.rpartition('/')[2])}"
        except PackageNotFoundError:
            return found

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different rows in seeded order.

        Raises:
            BadInput: the split does not hold that many.
            CannotDo: a row holds what is no JSON (pictures, dates).
        """
        rows, own = self._split(split)
        found: dict[str, Task] = {}
        # Without an evaluation dataset both splits come from one order, and the marks part them.
        for place in Dice("verifiers", self.id, split if own else "", seed).sample(
            range(len(rows)), len(rows)
        ):
            if len(found) == count:
                break
            row = _plain_row(rows[place], self.name)
            mark = _mark(row)
            if mark in found or not self._belongs(mark, split, own):
                continue
            found[mark] = self._task(row, mark, split)
        if len(found) < count:
            raise BadInput(f"found only {len(found)} different {split} rows, not {count}", where=self.name)
        return list(found.values())

    def _split(self, split: Split) -> tuple[Any, bool]:
        """The rows to choose from, and whether the environment has an evaluation dataset of its own."""
        env = self.env
        sources = [
            getattr(env, f"{kind}dataset_source", None) or getattr(env, f"{kind}dataset", None)
            for kind in ("", "eval_")
        ]
        both = all(one is not None for one in sources)
        which = "eval" if sources[0] is None or (both and split == "held-out") else "train"
        if which not in self._rows:
            with _quiet():
                self._rows[which] = env.get_eval_dataset() if which == "eval" else env.get_dataset()
        return self._rows[which], both

    def _belongs(self, mark: str, split: Split, own: bool) -> bool:
        if not own:
            return split_of(mark) == split
        if split == "held-out":
            return True
        if "marks" not in self._rows:
            held, _ = self._split("held-out")
            self._rows["marks"] = {_mark(_plain_row(row, self.name)) for row in held}
        return mark not in self._rows["marks"]

    def _task(self, row: Json, mark: str, split: Split) -> Task:
        data: Json = {"env": self.id, "row": row}
        prompt, tools = row["prompt"], _tools(self.env, row)
        lines = [prompt] if isinstance(prompt, str) else [text_of(one) for one in prompt]
        if tools:
            lines += ["tools:", *(json.dumps(tool) for tool in tools)]
        if not isinstance(prompt, str) and prompt:
            messages = [dict(one) for one in prompt]
            data["messages"] = [{**messages[0], **({"tools": tools} if tools else {})}, *messages[1:]]
        return Task(f"verifiers:{self.id}/{mark[:16]}", self.name, split, "\n".join(lines), data)

    def start(self, task: Task, seed: int) -> VerifiersEpisode:
        """Begin; an environment's chance is its own."""
        del seed
        need(task.data, ("env", "row"), self.name)
        if task.data["env"] != self.id:
            raise BadInput(f"this task is of {task.data['env']}", where=self.name)
        return VerifiersEpisode(self, task)

    def restore(self, task: Task, snapshot: bytes) -> VerifiersEpisode:
        """There are no snapshots; raises CannotDo."""
        del snapshot
        raise CannotDo(
            "a verifiers environment has no snapshots", where=f"task {task.id}", hint="replay the actions"
        )


def _mark(row: Json) -> str:
    """What makes a row the same task: its prompt, answer and info, not its number."""
    return digest([row.get("prompt"), row.get("answer"), row.get("info")])


def _plain_row(row: Any, where: str) -> Json:
    """A row as plain JSON; message fields that a dataset filled up with None are left out."""
    body = {key: value for key, value in dict(row).items() if value is not None}
    if isinstance(body.get("prompt"), list):
        body["prompt"] = [plain(one) for one in body["prompt"]]
    try:
        read: Json = json.loads(json.dumps(body))
    except (TypeError, ValueError) as error:
        raise CannotDo(f"a row of the dataset is no JSON: {error}", where=where) from error
    if "prompt" not in read:
        raise CannotDo("the rows of this environment have no prompt", where=where)
    return read


def _tools(env: Any, row: Json) -> list[Json]:
    """The tools that a task offers, as OpenAI writes them."""
    info = row.get("info")
    info = json.loads(info) if isinstance(info, str) and info.startswith("{") else info
    own = (info.get("oai_tools") or info.get("tool_defs")) if isinstance(info, dict) else None
    listed = own or getattr(env, "tool_defs", None) or getattr(env, "oai_tools", None) or []
    found = []
    for tool in map(plain, listed):
        parts = {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
        found.append(tool if "function" in tool else {"type": "function", "function": parts})
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's notes and bars; its errors are told by us. Signal handlers stay as they are.

    An environment takes over Ctrl-C when it is made: a run could no longer stop where it can be resumed.
    """
    # Handlers can be set in the main thread alone.
    log, main = logging.getLogger("verifiers"), threading.current_thread() is threading.main_thread()
    held = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)} if main else {}
    bars = os.environ.get("HF_DATASETS_DISABLE_PROGRESS_BARS")
    try:
        from datasets.utils import logging as library
    except ImportError:
        library = None
    if library is not None and bars is None and library.is_progress_bar_enabled():
        library.disable_progress_bar()
    else:
        library = None
    try:
        yield
    finally:
        if "VF_LOG_LEVEL" not in os.environ:
            log.setLevel(logging.ERROR)
            for handler in log.handlers:
                if isinstance(handler, logging.StreamHandler):
                    handler.setLevel(logging.CRITICAL)
        if library is not None:
            library.enable_progress_bar()
        for one, before in held.items():
            signal.signal(one, before)


def load(env_id: str, arguments: Json) -> Any:
    """The library's environment of an id.

    Raises:
        MissingExtra: verifiers is not installed.
        CannotDo: this version of it loads no such environments.
        BadInput: there is none of this id, or it refuses its arguments.
    """
    with _quiet():
        try:
            import verifiers
        except ImportError as error:
            if getattr(error, "name", None) == "verifiers":
                raise MissingExtra("verifiers", "verifiers") from None
            raise CannotDo(f"verifiers cannot be imported: {error}", where=f"verifiers:{env_id}") from error
        maker = getattr(verifiers, "load_environment", None)
        if maker is None:
            raise CannotDo(
                f"verifiers {version('verifiers')} has no load_environment: it holds only the newer tasksets",
                where=f"verifiers:{env_id}",
                hint="pip install 'verifiers<0.4'",
            )
        try:
            return maker(env_id, **arguments)
        except Exception as error:  # an environment's own code runs here
            hint = "install its package, or put the module that has load_environment on PYTHONPATH"
            raise BadInput(f"verifiers cannot load {env_id!r}: {error}", hint=hint) from error


def _limit(env: Any, turns: int | None) -> int:
    """Set the turns of an environment (and of those in a group) where that is asked for; how many it has.

    One of a single turn stays so, for it has nothing to answer.
    """
    inner = [_limit(one, turns) for one in getattr(env, "envs", None) or ()]
    own = getattr(env, "max_turns", None)
    if own is not None and own != 1 and (turns is not None or own <= 0):
        env.max_turns = own = turns or _TURNS
    return max([*inner, own or 0]) or turns or _TURNS


def open_verifiers(spec: Spec) -> VerifiersWorld:
    """``verifiers:ENV-ID``: environments of the verifiers library (turns, seconds; its arguments as options).

    Raises:
        BadInput: an unknown environment or option, or arguments that it refuses.
        CannotDo: this version of the library has no such environments.
        MissingExtra: verifiers is not installed.
    """
    if not spec.argument:
        raise BadInput("which environment?", where="verifiers", hint="verifiers:ENV-ID")
    spec.typed(f"the module of {spec.argument}")
    own = Spec(spec.name, spec.argument, {k: v for k, v in spec.options.items() if k in _OWN}, spec.query)
    given = own.take(_OWN)
    turns, seconds = given.get("turns"), float(given.get("seconds", _SECONDS))
    if turns is not None and turns < 1:
        raise BadInput(f"turns is {turns}; it must be at least 1", where="verifiers")
    if not seconds > 0:
        raise BadInput(f"seconds is {seconds:g}; it must be above 0", where="verifiers")
    env = load(spec.argument, {key: value for key, value in spec.options.items() if key not in _OWN})
    return VerifiersWorld(
        spec.argument,
        env,
        _limit(env, turns),
        seconds,
        bool(given.get("deterministic", False)),
        spec.query,
    )


# A rollout of a ``verifiers`` environment that waits wherever it asks its model.
#
# The environment runs its own loop (``run_rollout``) in a thread with an event loop; its model is a client
# of ours that hands each question out and waits for the answer. So every environment runs as it does
# anywhere: its own turns, tools, stop conditions and rubric, whatever it overrides.


#: What a reward function that raised is logged as; it is then counted as 0, which it is not.
_FAILED: Final = "reward function"
_FAILURES: ContextVar[list[str] | None] = ContextVar("failures", default=None)


@dataclass(frozen=True, slots=True)
class Asked:
    """The model is asked: the messages of its context (one text in completion mode) and the tools offered."""

    messages: list[Json] | str
    tools: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The rollout is over; ``failures``: reward functions that raised."""

    output: Json
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """The environment raised, or did not answer in time."""

    why: str


Event: TypeAlias = Asked | Ended | Broken
_Ask: TypeAlias = Callable[[Any, Any], Awaitable[Message]]


@final
class _Watch(logging.Handler):
    """Notes reward functions that raise, for the rollout in whose context they do."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        found, text = _FAILURES.get(), record.getMessage()
        if found is not None and _FAILED in text and record.levelno >= logging.ERROR:
            found.append(text)


@final
class _Loop:
    """An event loop in a daemon thread, shared by the rollouts of this process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="refork-verifiers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what still waits, so that the interpreter ends without a word about it."""
        asyncio.run_coroutine_threadsafe(self._cancel(), self.loop)
        self._thread.join(timeout=2)

    async def _cancel(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.stop()


_WATCH: Final = _Watch(logging.ERROR)
_LOCK = threading.Lock()
_LOOPS: list[_Loop] = []
_LEFT: list[_Loop] = []


def _loop() -> _Loop:
    with _LOCK:
        if not _LOOPS or _LOOPS[0].process != os.getpid():
            _LOOPS[:] = [_Loop()]
            logging.getLogger("verifiers").addHandler(_WATCH)
        return _LOOPS[0]


@atexit.register
def _stop() -> None:
    """End the loops of this process, those that were left too."""
    for one in (*_LOOPS, *_LEFT):
        if one.process == os.getpid():
            one.stop()


def _leave(stuck: _Loop) -> None:
    """Let a loop go whose rollout does not answer; the next rollout has a new one."""
    with _LOCK:
        if stuck in _LOOPS:
            _LOOPS.remove(stuck)
            _LEFT.append(stuck)


@final
class Rollout:
    """One rollout; :meth:`begin` and :meth:`answer` wait until it asks again or ends."""

    def __init__(self, env: Any, row: Json, seconds: float) -> None:
        self._env, self._row, self._seconds = env, row, seconds
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._reply: asyncio.Future[Message] | None = None
        self._home = _loop()
        self._task: Any = None

    def begin(self) -> Event:
        """Start it."""
        self._task = asyncio.run_coroutine_threadsafe(self._run(), self._home.loop)
        return self._next()

    def answer(self, message: Message) -> Event:
        """Answer its question with an assistant's message."""
        reply, self._reply = self._reply, None
        if reply is None:
            return Broken("the environment asked nothing")
        self._home.loop.call_soon_threadsafe(_settle, reply, message)
        return self._next()

    def close(self) -> None:
        """Leave it; it is cancelled where it waits."""
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> Event:
        try:
            return self._events.get(timeout=self._seconds)
        except Empty:
            _leave(self._home)
            self.close()
            return Broken(f"the environment did not answer in {self._seconds:g} s")

    async def _run(self) -> None:
        failures: list[str] = []
        _FAILURES.set(failures)
        try:
            output = await self._env.run_rollout(dict(self._row), _client(self._ask), "policy", {})
            self._events.put(Ended(dict(output), tuple(failures)))
        except Exception as error:  # whatever an environment raises ends this rollout and no other
            self._events.put(Broken(f"{type(error).__name__}: {error}"))

    async def _ask(self, messages: Any, tools: Any) -> Message:
        if self._reply is not None:
            raise RuntimeError("the environment asks two questions at once; a policy answers one")
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._reply = waiting
        said = messages if isinstance(messages, str) else [plain(one) for one in messages]
        self._events.put(Asked(said, tuple(plain(one) for one in tools or ())))
        return await waiting


def _settle(reply: asyncio.Future[Message], message: Message) -> None:
    if not reply.done():
        reply.set_result(message)


def plain(value: Any) -> Json:
    """A message or tool as plain JSON, whether a dictionary or one of the library's models."""
    body = value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else dict(value)
    read: Json = json.loads(json.dumps(body, default=str))
    return {key: part for key, part in read.items() if part is not None}


def _client(ask: _Ask) -> Any:
    """What the library takes for a model: its own kind of client, or OpenAI's by its shape."""
    try:
        from verifiers import clients
    except ImportError:  # up to 0.1.10 environments call OpenAI's client themselves
        return _openai(ask)
    return _library(clients, ask)


def _library(clients: Any, ask: _Ask) -> Any:
    from verifiers.types import Response

    async def get_response(self: Any, prompt: Any, model: str, sampling: Any = None, **more: Any) -> Any:
        del self, model, sampling
        message = await ask(prompt, more.get("tools"))
        calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()]
        body = {
            "role": "assistant",
            "content": message["content"],
            "finish_reason": "tool_calls" if calls else "stop",
            "is_truncated": False,
            "tool_calls": calls or None,
        }
        return Response.model_validate({"id": "refork", "created": 0, "model": "policy", "message": body})

    # All that a client has beside this turns requests into those of one provider, of which there is none.
    unused = dict.fromkeys(clients.Client.__abstractmethods__, _unused)
    return type("Policy", (clients.Client,), {**unused, "get_response": get_response})(None)


def _unused(self: Any, *_: Any, **__: Any) -> Any:
    raise NotImplementedError("there is no provider behind this model")


def _openai(ask: _Ask) -> Any:
    async def chat(*, messages: Any, tools: Any = None, **_: Any) -> Any:
        from openai.types.chat import ChatCompletion

        message = await ask(messages, tools)
        why = "tool_calls" if message.get("tool_calls") else "stop"
        return ChatCompletion.model_validate(_body("chat.completion", why, message=message))

    async def text(*, prompt: Any, **_: Any) -> Any:
        from openai.types import Completion

        message = await ask(str(prompt), None)
        return Completion.model_validate(_body("text_completion", "stop", text=message["content"]))

    return SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=chat)),
        completions=SimpleNamespace(create=text),
    )


def _body(kind: str, why: str, **said: Any) -> Json:
    return {
        "id": "refork",
        "object": kind,
        "created": 0,
        "model": "policy",
        "choices": [{"index": 0, "finish_reason": why, "logprobs": None, **said}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
