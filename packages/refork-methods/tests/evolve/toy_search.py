"""A toy runtime: two slots and a fixed role; a judge is a number, right more often the larger it is."""

import hashlib

from refork.plain import content_hash
from refork_methods.evolve.promote import Gate, tally
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.search import Runtime, Settings

SECRETS = [f"anchor item {i} is private" for i in range(60)]
SLOTS = [EvaluatorSlot("style", "j5"), EvaluatorSlot("proof", "j5")]
SETTINGS = Settings(300, first=8, seed=4, gate=Gate("best_belief"))
START = {"skill": 0.5, "judge": 5}


def chance(*parts):
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def says(judge, what):
    return int(chance(judge, what) < 0.5 + int(judge[1:]) / 40)


class Toy:
    """Editor, evaluator and examiner; ``calls`` counts what was asked of it."""

    def __init__(self, growing=True, stop=None):
        self.calls, self.growing, self.stop = 0, growing, stop
        self.fingerprint = content_hash(SECRETS)

    def _ask(self):
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt

    def edit(self, archive, parent, step):
        self._ask()
        if chance("bad", step) < 0.1:
            return None
        mother = archive.workspaces[parent]
        move = chance("skill", step) / 2 - 0.2
        return {"skill": mother["skill"] + move, "judge": 1 + int(chance("judge", step) * 16)}

    def cells(self, archive):
        extra = len(archive.decisions) if self.growing else 0
        learned = [Cell("write", f"w{i}", "style") for i in range(12 + extra)]
        learned += [Cell("prove", f"p{i}", "proof") for i in range(12)]
        return [*learned, *(Cell("code", f"c{i}") for i in range(12))]

    def evaluate(self, archive, node, cell, artifact):
        self._ask()
        key = artifact or f"{node}/{cell.role}/{cell.task}"
        skill = archive.workspaces[node]["skill"]
        if cell.slot is None:
            return int(chance("test", key) < skill), "unit tests", key
        judge = archive.slots[cell.slot].judge
        return says(judge, key) if chance("good", key) < skill else 1 - says(judge, key), judge, key

    def examine(self, archive, slot):
        self._ask()
        base = [says(slot.judge, secret) for secret in SECRETS]
        names = {f"j{one['judge']}" for one in archive.workspaces} - {slot.judge}
        rivals = [tally(n, [says(n, s) for s in SECRETS], base) for n in sorted(names)]
        return tally(slot.judge, base, base), rivals, {}


def runtime(**options):
    toy = Toy(**options)
    return Runtime(toy, toy, toy), toy
