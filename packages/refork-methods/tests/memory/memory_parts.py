"""A small payment environment, runs in it, and a guard that admits everything."""

from __future__ import annotations

import json

from refork.plain import to_json
from refork_methods.memory.admission import Admission, fingerprints
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.trajectory import RunStep, RunTrajectory

PEOPLE = [
    {"user_id": 5 + n, "name": name} for n, name in enumerate(["Bob May", "Cy Day", "Ann Lee", "Ann Lo"])
]


def asks(name="Ann Lee", amount=20, note="rent"):
    return f'Send {amount} dollars to {name} for "{note}"'


def pay_run(task, name="Ann Lee", amount=20, note="rent", *, success=True, noise=""):
    """A run that pays; ``noise`` changes what it saw by the way."""
    user = next(one["user_id"] for one in PEOPLE if one["name"] == name)
    token = f"T{task}{noise}"

    def step(number, function, arguments, result, failed=False):
        return RunStep(f"s{number}", noise, function, arguments, result, failed=failed)

    return RunTrajectory(
        task,
        asks(name, amount, note),
        (
            step(0, "pay.login", {"password": "p-1"}, {"token": token}),
            step(1, "pay.list_people", {"token": token, "page": 0}, {"items": PEOPLE[:2], "page": 0}),
            step(2, "pay.list_people", {"token": token, "page": 1}, {"items": PEOPLE[2:], "page": 1}),
            step(3, "pay.list_history", {"token": token}, [{"id": noise or "none"}]),
            step(4, "pay.send", {"token": token, "user_id": "x", "amount": amount, "note": note}, None, True),
            step(5, "pay.send", {"token": token, "user_id": user, "amount": amount, "note": note}, {"id": 1}),
            RunStep("s6", "Done."),
        ),
        success,
        context="The password is p-1.",
    )


QUERIES = (("Ann Lee", 20, "rent"), ("Bob May", 35, "food"), ("Cy Day", 7, "a book"), ("Ann Lo", 9, "cake"))


def schema(**types):
    return {
        "type": "object",
        "properties": {k: {"type": v} for k, v in types.items()},
        "required": list(types),
    }


CATALOGUE = {
    "pay.login": schema(password="string"),
    "pay.list_people": schema(token="string", page="integer"),
    "pay.list_history": schema(token="string"),
    "pay.send": schema(token="string", user_id="integer", amount="number", note="string"),
}


class Everybody:
    """Admits every tool and keeps what it saw."""

    def __init__(self, reason=""):
        self.reason = reason
        self.seen = []

    def admit(self, tool, admitted):
        self.seen.append(tool)
        return Admission(not self.reason, self.reason, tool, ToolRegistry(tuple(admitted)))

    def fingerprints(self, tool):
        return fingerprints(tool, CATALOGUE)


def write_runs(file, runs):
    """Runs as our own JSON lines."""
    file.write_text("".join(json.dumps(to_json(run)) + "\n" for run in runs))
