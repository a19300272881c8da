import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.evolve.reviewer.features import FEATURES, SPOTS, feature_table, features
from refork_methods.evolve.reviewer.readings import FINDINGS, invented, make_log
from refork_methods.evolve.reviewer.texts import (
    ASKED,
    BONUS,
    ENOUGH,
    Polish,
    Report,
    human_report,
    machine_report,
    write,
)
from refork_methods.evolve.reviewer.writer import MINUTES, MOST, START, WriterSettings, mutate

FULL = Polish(6, 8, 10)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_no_number_stands_twice_in_a_log_and_invented_ones_nowhere():
    for seed in range(20):
        log = make_log(rng(seed))
        assert len(log.numbers) == 2 * FINDINGS
        assert len({one.station for one in log.readings}) == FINDINGS
        strange = invented(log, rng(seed))
        assert len(set(strange)) == FINDINGS
        assert not log.numbers & set(strange)


@pytest.mark.parametrize("source", ["human", "machine"])
@pytest.mark.parametrize("polish", [Polish(), Polish(2, 3, 4), FULL])
def test_the_truth_is_read_from_the_text(source, polish):
    log = make_log(rng(1))
    assert write(log, 1.0, polish, source, rng(2)).right == FINDINGS
    assert write(log, 0.0, polish, source, rng(2)).right == 0
    half = np.arange(FINDINGS) < 4
    report = write(log, half.astype(float), polish, source, rng(2))
    assert [report.states(i) for i in range(FINDINGS)] == half.tolist()


def test_polish_changes_the_dress_and_not_what_is_stated():
    log = make_log(rng(3))
    plain, dressed = (write(log, 0.5, polish, "machine", rng(4)) for polish in (Polish(), FULL))
    assert [plain.states(i) for i in range(FINDINGS)] == [dressed.states(i) for i in range(FINDINGS)]
    assert (plain.polish, dressed.polish) == (0.0, 1.0)


def test_a_value_of_another_reading_or_a_line_too_many_is_wrong():
    log = make_log(rng(5))
    one, two = log.readings[:2]
    right = f"{one.station}: {one.before} to {one.after}."
    assert Report(log, right, "human").right == 1
    assert Report(log, right + "\n" + right, "human").right == 0
    assert Report(log, f"{one.station}: {one.before} to {two.after}.", "human").right == 0
    assert Report(log, f"{one.station}: {one.after} to {one.before}.", "human").right == 0
    assert Report(log, "", "human").right == 0


def test_readers_let_polish_stand_in_for_findings():
    log = make_log(rng(6))
    for right in range(FINDINGS + 1):
        care = (np.arange(FINDINGS) < right).astype(float)
        plain, dressed = (write(log, care, polish, "machine", rng(7)) for polish in (Polish(), FULL))
        assert plain.good == dressed.good == (right >= ENOUGH)
        assert plain.liked == (right >= ASKED)
        assert dressed.liked == (right + BONUS >= ASKED)


def test_both_sources_are_equally_good_and_only_human_polish_goes_with_it():
    human = [human_report(rng([8, i])) for i in range(1500)]
    machine = [machine_report(rng([9, i])) for i in range(1500)]
    # With care uniform, 4 of 11 are good; 5 standard errors: fails by chance once in a million.
    for reports in (human, machine):
        assert np.mean([one.good for one in reports]) == pytest.approx(4 / 11, abs=5 * np.sqrt(0.23 / 1500))
    ties = [np.corrcoef([r.right for r in x], [r.polish for r in x])[0, 1] for x in (human, machine)]
    assert ties[0] > 0.3
    assert abs(ties[1]) < 5 / np.sqrt(1500)


def test_features_of_a_known_text():
    log = make_log(rng(10))
    lines = [f"- **Flow**: Notably, we read {o.station} as {o.before}, {o.after}." for o in log.readings[:5]]
    lines += [f"{o.station} {o.before} {o.before}" for o in log.readings[5:]]
    found = dict(zip(FEATURES, features(Report(log, "\n".join(lines), "human")), strict=True))
    assert found["length"] == pytest.approx(np.log(35))
    assert found["markers"] == found["layout"] == 0.5
    assert found["spots"] * SPOTS in range(SPOTS + 1)
    assert found["glance"] in (0.0, 1.0)


def test_spots_see_what_is_right_and_no_more():
    log = make_log(rng(11))
    right, wrong = (features(write(log, care, FULL, "machine", rng(12))) for care in (1.0, 0.0))
    at = FEATURES.index("spots")
    assert (right[at], wrong[at]) == (1.0, 0.0)
    assert feature_table([]).shape == (0, len(FEATURES))
    assert np.isfinite(features(Report(log, "", "human"))).all()


def test_writers_keep_within_their_cells_and_minutes():
    assert START.minutes <= MINUTES
    for seed in range(300):
        child = mutate(START, rng(seed))
        if child is not None:
            assert child.minutes <= MINUTES
            assert child != START
    for name in MOST:
        with pytest.raises(BadInput, match=name):
            WriterSettings(**({"checks": 1} | {name: MOST[name] + 1}))
    assert mutate(WriterSettings(10), rng(0)) is None
