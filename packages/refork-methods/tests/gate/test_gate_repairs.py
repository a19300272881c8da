"""What the repair bench tells a writer before it tries again."""

from refork_methods.gate.live import CriticVerdict, Verdict
from refork_testbed.trials.gate_repairs import RepairBench
from refork_testbed.worlds.repair.world import RepairWorld


class Asked:
    """A writer's feedback, taken from the bench."""

    def __init__(self, monkeypatch, wording):
        self.feedback = None

        def writer(root, policy, settings, *, feedback, **more):
            self.feedback = feedback

        monkeypatch.setattr("refork_testbed.trials.gate_repairs.TreeWriter", writer)
        monkeypatch.setattr("refork_testbed.trials.gate_repairs.plant", lambda *given: [None])
        world = RepairWorld(origin="generated", wording=wording)
        task = world.tasks("train", 1)[0]
        RepairBench(None, world, None).open(task)(0)


TOLD = (
    CriticVerdict("syntax", Verdict(True)),
    CriticVerdict("public", Verdict(False, reason="tests/test_a.py::test_b_1: AssertionError")),
    CriticVerdict("verify", Verdict(False, reason="")),
)


def test_the_small_wording_names_the_critics_that_failed(monkeypatch):
    feedback = Asked(monkeypatch, "small").feedback
    assert feedback(TOLD) == "public: failed"
    assert feedback(TOLD[2:]) == feedback(()) == "not right yet"


def test_the_full_wording_says_why(monkeypatch):
    feedback = Asked(monkeypatch, "full").feedback
    assert feedback(TOLD[:2]) == "public: tests/test_a.py::test_b_1: AssertionError"
    assert feedback(()) == "not right yet"
