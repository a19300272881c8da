"""Are programs of real agent packages recorded, replayed and forked as they are?

Each program is written as its package's own pages write one: a tool, a task, and no word of Refork
(benchmarks/parts/programs); besides, command lines for coding from npm. The provider is a script that
answers in the real dialects, whole and in streams, with several calls at once, refusals for a while and
streams that break off (parts/agents_provider.py): a model of this machine's size does not call tools. Each
of its answers holds a number of chance, so that an answer which was asked for once more cannot look like
the recorded one.

A run is recorded. Then folder and home are laid anew, and it is replayed. At last one run of each package
is forked at the exchange before the last, with the answer drawn again. Counted are requests that come to
the provider during a replay, and in a fork those of before the point. Where a package's calls of tools can be
intercepted they are (``--patch``), and its tool goes to a server that counts who comes. All others run
contained, and leave marks in a file outside. So a tool that fires again is counted, in replays and before the
point of a fork; the programs' code is the same either way.

Three command lines are run once more with a real ``refork serve`` between them and the script: a process of
its own, started as anybody starts it, that has the script as its model (``--model m=openai:URL#m``). It says
what Codex offers and calls over Responses in chat completions.

Planted programs whose law is known show whether a fork's interval holds the truth, and the first page's
commands are run on some that failed (parts/agents_planted.py).

A package that is not installed is left out, and said to be. The full form makes 400 runs and more, and first
installs what is named below, in an environment of its own; ``--each`` sets how many runs there are of every
program and way of asking. REFORK_PROGRAMS and REFORK_PROGRAMS_NPM name a Python and a folder of npm that have
the packages already.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from parts import agents_planted
from parts.agents_provider import Provider, serving
from parts.peer_env import peer_commands, peer_python
from refork import agents
from refork.agents.tape import events_of
from refork.errors import ReforkError
from refork.tree import Tree
from refork.types import Json

PROGRAMS = Path(__file__).resolve().parent / "parts" / "programs"
#: Variables that would change what a program asks, or whom.
_FOREIGN = re.compile(
    r"OPENAI|ANTHROPIC|CLAUDE|GEMINI|GOOGLE|AZURE|OLLAMA|CODEX|QWEN|OPENCODE|LANGSMITH|LITELLM|^VISITS$"
)
#: What was measured, each the newest that fits beside the others.
PYPI = (
    "langgraph==1.2.24", "langchain==1.5.2", "langchain-openai==1.7.4", "langchain-anthropic==1.7.10",
    "openai==2.54.0", "anthropic==2.14.0", "google-genai==2.34.0", "openai-agents==0.24.0",
    "pydantic-ai-slim==2.68.0", "smolagents[openai]==1.26.0", "autogen-agentchat==0.7.5",
    "autogen-ext[openai]==0.7.5", "agent-framework-core==1.23.0", "agent-framework-openai==1.17.0",
    "dspy==3.4.1", "crewai==1.15.30", "mini-swe-agent==2.4.6",
)  # fmt: skip
NPM = (
    "@openai/codex@0.171.0", "@anthropic-ai/claude-code@2.1.197", "@qwen-code/qwen-code@0.15.10",
    "opencode-ai@1.18.33", "@google/gemini-cli@0.61.0",
)  # fmt: skip
ERRAND = "Errand {}: visit north and south, then the cellar."


@dataclass(frozen=True)
class Framework:
    """A package, what uses it, the ways in which that is run, and how often each in the full form.

    ``ways``: words for the program, of which those with # are for the provider. ``settings``: variables
    that it needs here. ``home``: files that it needs in its home. ``patched``: its tools are intercepted.
    ``models``: names by which it asks, for a server that has no other.
    """

    name: str
    package: str
    ways: tuple[str, ...] = ("",)
    full: int = 12
    settings: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    home: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    patched: bool = False
    models: tuple[str, ...] = ()


#: There is no network but packages' here: what is fetched or told at the start only takes time.
_OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
_ALL = ("", "stream", "#flaky", "stream #flaky")
FRAMEWORKS = (
    Framework(
        "openai_sdk", "openai",
        (*_ALL, "responses", "responses stream", "stream #broken", "stream leave"), 16,
    ),
    Framework("anthropic_sdk", "anthropic", _ALL, 16),
    Framework("google_genai", "google-genai", ("", "stream")),
    Framework("langgraph_agent", "langgraph", (*_ALL, "anthropic", "anthropic stream"), patched=True),
    Framework(
        "openai_agents", "openai-agents", ("", "stream", "chat", "chat stream", "#flaky"),
        settings={"OPENAI_AGENTS_DISABLE_TRACING": "1"}, patched=True,
        remark="its traces go to OpenAI past the endpoint; `OPENAI_AGENTS_DISABLE_TRACING=1` stops them",
    ),
    Framework(
        "pydantic_ai_agent", "pydantic-ai-slim", ("", "stream", "anthropic", "anthropic stream"),
        patched=True,
    ),
    Framework(
        "smolagents_agent", "smolagents", ("", "stream"), remark="takes its key as an argument",
        patched=True,
    ),
    Framework("autogen_agent", "autogen-agentchat", ("", "stream")),
    Framework(
        "agent_framework_agent", "agent-framework-core", ("", "stream", "chat", "chat stream"),
        remark="names the answer before in place of sending the conversation",
    ),
    Framework("dspy_agent", "dspy", full=4, settings=_OFFLINE, remark="with its cache off"),
    Framework(
        "crewai_agent", "crewai", ("", "stream"), full=4,
        settings={"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"},
    ),
    Framework(
        "mini", "mini-swe-agent", full=4,
        settings={**_OFFLINE, "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"},
        command='mini -m openai/m -y --exit-immediately -t "$0"',
    ),
    Framework(
        "codex", "npm:@openai/codex", full=4,
        command="CODEX_API_KEY=$OPENAI_API_KEY codex exec --skip-git-repo-check "
        "--sandbox danger-full-access -m m "
        '-c openai_base_url="\\"$OPENAI_BASE_URL\\"" "$0"',
        remark="needs `-c openai_base_url` and its key in `CODEX_API_KEY`", models=("m",),
    ),
    Framework(
        "claude", "npm:@anthropic-ai/claude-code", full=4, settings={"IS_SANDBOX": "1"},
        command='claude --dangerously-skip-permissions -p "$0"',
    ),
    Framework(
        "qwen", "npm:@qwen-code/qwen-code", full=4, command='qwen --auth-type openai -m m -y -p "$0"',
        remark="puts a listing of its folder into its prompt: replay in the folder as it was", models=("m",),
    ),
    Framework(
        "opencode", "npm:opencode-ai", full=4, command='opencode run -m openai/gpt-4o "$0"',
        models=("gpt-4o", "gpt-5-nano"),
    ),
    Framework(
        "gemini", "npm:@google/gemini-cli", full=4, settings={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
        command='gemini -m m -y -p "$0"',
        home={".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'},
        remark="needs `security.auth.selectedType` in its settings",
    ),
)  # fmt: skip


@dataclass
class Counted:
    """What was seen of one package."""

    runs: int = 0
    identical: int = 0
    same_output: int = 0
    exchanges: int = 0
    byte_equal: int = 0
    asked_again: int = 0
    visits: int = 0
    from_tape: int = 0
    visits_again: int = 0
    draws: int = 0
    lost: int = 0
    before_point: int = 0
    why: str = ""

    @property
    def whole(self) -> bool:
        """Whether all went as it should: each run ended well and came back, and both arms were drawn."""
        wrong = self.runs - self.identical + self.asked_again + self.before_point + self.lost
        wrong += self.visits_again
        return self.runs > 0 and self.draws > 0 and wrong == 0 and not self.why


@dataclass(frozen=True)
class World:
    """The provider, the address that programs are recorded with, and where all of it lies."""

    provider: Provider
    address: str
    place: Path


def versions(python: str, npm: Path | None) -> dict[str, str]:
    """The version of each package that is there."""
    names = [one.package for one in FRAMEWORKS if not one.package.startswith("npm:")]
    code = "import sys, json, importlib.metadata as m\nfound = {}\nfor name in sys.argv[1:]:\n"
    code += "  try: found[name] = m.version(name)\n  except m.PackageNotFoundError: pass\n"
    code += "print(json.dumps(found))"
    told = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(told.stdout)
    for one in FRAMEWORKS:
        if one.package.startswith("npm:") and npm is not None:
            file = npm / "node_modules" / one.package.removeprefix("npm:") / "package.json"
            if file.is_file():
                found[one.package] = json.loads(file.read_text())["version"]
    return found


def lay(place: Path, one: Framework) -> None:
    """Folder and home as they are before a run."""
    for name in ("work", "home"):
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir(parents=True)
    for name, text in one.home.items():
        file = place / "home" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def marks(world: World) -> list[str]:
    """Places that tools came to since the last look: on the server that counts, or by marks outside."""
    file = world.place / "visits.txt"
    found = [*world.provider.visits, *(file.read_text().split() if file.is_file() else [])]
    world.provider.visits.clear()
    file.unlink(missing_ok=True)
    return found


def command(one: Framework, python: str, way: str, number: int) -> list[str]:
    """What is run, as in a shell."""
    words = way.split()
    errand = " ".join([ERRAND.format(number), *(word for word in words if word.startswith("#"))])
    if one.command:
        return ["sh", "-c", one.command, errand]
    rest = [word for word in words if not word.startswith("#")]
    return [python, str(PROGRAMS / f"{one.name}.py"), errand, *rest]


def run(one: Framework, way: str, number: int, python: str, world: World, seen: Counted) -> str:
    """Record and replay one run: the tape's file, empty where it was not recorded whole."""
    provider, place = world.provider, world.place
    lay(place, one)
    tape = place / f"{one.name}-{number}.db"
    with Tree.open(tape) as tree:
        seen.runs += 1
        try:
            recorded = agents.record(
                tree, command(one, python, way, number), folder=place / "work", to=world.address, quiet=True,
                settings=agents.RecordSettings(patch=one.patched),
            )  # fmt: skip
            visits, asked = len(marks(world)), len(provider.asked)
            seen.visits += visits
            if f"errand {number} is done" not in (recorded.output or "") or recorded.exit or visits < 3:
                seen.why = f"exit status {recorded.exit}, {visits} visits: {(recorded.output or '')[-300:]}"
                return ""
            lay(place, one)
            if one.patched:
                told = agents.replay(tree, recorded, quiet=True)
            else:
                with agents.ContainedRun(tree, recorded) as inside:
                    told = agents.replay(tree, recorded, quiet=True, contained=inside)
        except ReforkError as error:
            seen.why = str(error)
            return ""
    seen.visits_again += len(marks(world))
    seen.from_tape += told.tools_given
    seen.asked_again += len(provider.asked) - asked
    seen.exchanges += told.recorded
    seen.byte_equal += told.byte_equal
    seen.identical += told.identical
    seen.same_output += bool(told.output_equal)
    if not told.identical:
        seen.why = told.sentence
    return str(tape)


def fork(one: Framework, tape: str, world: World, seen: Counted) -> None:
    """Fork a run at the exchange before its last of the errand, with the answer drawn again."""
    provider, place = world.provider, world.place
    lay(place, one)
    with Tree.open(tape) as tree:
        recorded = agents.find_run(tree, None)
        # Titles and counts are no part of the errand.
        on_errand = [
            event.number for event in events_of(tree, recorded)
            if (b"Errand" in event.wire.body or b"previous_response_id" in event.wire.body)
            and b"cellar" in event.wire.answer
        ]  # fmt: skip
        asked = len(provider.asked)
        how = agents.ProgramForkSettings(
            world.address, limit_s=300.0, contained=not one.patched, tools="live"
        )
        try:
            arms = agents.fork_run(
                tree, recorded, on_errand[-1], agents.ProgramChange("again"), 1,
                outcome=agents.Outcome(succeeds=r"errand \d+ is done"), settings=how,
            )  # fmt: skip
        except ReforkError as error:
            seen.why = str(error)
            return
    draws = [draw for arm in arms for draw in arm.draws]
    seen.draws += len(draws)
    errors = [draw.error for draw in draws if draw.error]
    seen.lost += len(errors)
    # At the point north and south were seen.
    seen.before_point += sum(not {"north", "south"} <= new.places for new in provider.asked[asked:])
    seen.visits_again += sum(visited in ("north", "south") for visited in marks(world))
    if errors:
        seen.why = errors[0]


@contextmanager
def refork_serve(models: Sequence[str], url: str) -> Iterator[str]:
    """A real `refork serve` with the script as its model, by several names; gives its address."""
    given = [part for name in models for part in ("--model", f"{name}=openai:{url}#m")]
    started = [sys.executable, "-m", "refork", "serve", "--port", "0", *given]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said, address = "", None
        while address is None:
            line = process.stdout.readline()
            said += line
            address = re.search(r"http://127\.0\.0\.1:\d+/v1(?= |$)", line) if "serv" in line else None
            if not line:
                raise SystemExit(f"refork serve did not start: {said}")
        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        try:
            yield address.group()
        finally:
            process.terminate()
            drain.join()


def trial(one: Framework, times: int, numbers: Iterator[int], python: str, world: World) -> Counted:
    """Run one package in all its ways, and fork its first run."""
    seen, forked = Counted(), False
    own = {**one.settings, "HOME": str(world.place / "home"), "VISITS": str(world.place / "visits.txt")}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    for way in one.ways:
        for _ in range(times):
            tape = run(one, way, next(numbers), python, world, seen)
            if tape and not forked:
                fork(one, tape, world, seen)
                forked = True
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    return seen


def row(one: Framework, version: str, seen: Counted, how: str = "") -> str:
    """A row of the table of docs/agents.md."""
    ways = ", ".join(way.replace("#", "") or "plain" for way in one.ways)
    what = f"`{one.name}.py`: {ways}"
    if one.command:
        what = "`" + one.command.removesuffix(' "$0"') + "`"
    came = f"{seen.identical} of {seen.runs}"
    drawn = f"{seen.draws - seen.lost} of {seen.draws}"
    why = seen.why.replace("|", "/").replace("\n", " ")[:300] or one.remark
    remark = "; ".join(filter(None, [how, why]))
    cells = (one.package.removeprefix("npm:"), version, what, seen.runs, came, drawn, remark)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Run all, print the table, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run of every program and way of asking")
    parser.add_argument("--each", type=int, help="runs of every program and way of asking")
    parser.add_argument("--only", action="append", help="a program of parts/programs or a command, by name")
    options = parser.parse_args()
    python = peer_python(PYPI, "REFORK_PROGRAMS", make=not options.quick) or sys.executable
    npm = peer_commands(NPM, "REFORK_PROGRAMS_NPM", make=not options.quick)
    for name in [name for name in os.environ if _FOREIGN.search(name)]:
        del os.environ[name]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # packages would be compiled at every start
    found = versions(python, npm)
    paths = [
        str(Path(python).parent),
        *([str(npm / "node_modules/.bin")] if npm else []),
    ]
    os.environ["PATH"] = os.pathsep.join([*paths, os.environ["PATH"]])
    known = {one.name: one for one in FRAMEWORKS}
    wanted = [known[name] for name in options.only or known]
    started = time.monotonic()
    all_seen: dict[str, Counted] = {}
    served: dict[str, Counted] = {}
    print("| package | version | what ran | recorded | replayed the same | draws of a fork | remarks |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, serving() as (provider, url):
        world = World(provider, f"{url}/v1", Path(folder))
        os.environ["VISITED"] = f"{url}/visited"
        numbers = itertools.count(1)
        for one in [one for one in wanted if one.package in found]:
            times = options.each or (1 if options.quick else one.full)
            seen = all_seen[one.name] = trial(one, times, numbers, python, world)
            print(row(one, found[one.package], seen), flush=True)
        names = sorted({name for one in wanted for name in one.models})
        with refork_serve(names, world.address) if names else nullcontext("") as address:
            for one in [one for one in wanted if one.package in found and one.models]:
                times = options.each or (1 if options.quick else one.full)
                seen = trial(one, times, numbers, python, replace(world, address=address))
                served[one.name] = seen
                print(row(one, found[one.package], seen, "against `refork serve`"), flush=True)
        planted: Json = {}
        if not options.only:
            planted = agents_planted.coverage(2_000)
            planted |= agents_planted.real_forks(*((4, 8) if options.quick else (40, 16)), Path(folder))
            planted |= agents_planted.by_readme(3 if options.quick else 11, Path(folder))
    total = {
        key: sum(getattr(seen, key) for seen in all_seen.values())
        for key in Counted.__annotations__
        if key != "why"
    }
    good = [one for one in wanted if one.name in all_seen and all_seen[one.name].whole]
    figures: Json = {
        "frameworks_unmodified": len(good),
        "coding_clis": sum(one.package.startswith("npm:") for one in good),
        "recorded_runs": total["runs"],
        "replay_identical": round(total["identical"] / max(1, total["runs"]), 4),
        "exchanges": total["exchanges"],
        "byte_equal": total["byte_equal"],
        "models_asked_in_replay": total["asked_again"],
        "models_asked_before_point": total["before_point"],
        "draws": total["draws"],
        "draws_lost": total["lost"],
        "tools_recorded": total["visits"],
        "tools_given_from_tape": total["from_tape"],
        "tools_refired": total["visits_again"] + sum(seen.visits_again for seen in served.values()),
        "against_refork_serve": {
            "names": sorted(served),
            "recorded": sum(seen.runs for seen in served.values()),
            "identical": sum(seen.identical for seen in served.values()),
            "draws": sum(seen.draws - seen.lost for seen in served.values()),
            "not_whole": sorted(name for name, seen in served.items() if not seen.whole),
        },
        "served_whole": sum(seen.whole for seen in served.values()),
        **planted,
        "not_installed": [one.package for one in wanted if one.package not in found],
        "not_whole": [one.name for one in wanted if one.name in all_seen and one not in good],
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
