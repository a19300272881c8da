"""The caches that are simulated: as reported where that can be; the host's are not a guest's."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from refork_methods.kernel.bench import Driver
from refork_methods.kernel.cpu.cachegrind import Cache, caches, simulate


def reported(folder: Path, rows: list[tuple[str, str, str, str]]) -> Path:
    for number, (level, kind, size, ways) in enumerate(rows):
        index = folder / f"index{number}"
        index.mkdir()
        told = {"level": level, "type": kind, "size": size, "ways_of_associativity": ways}
        for name, text in (told | {"coherency_line_size": "64"}).items():
            (index / name).write_text(text + "\n")
    return folder


def test_a_guest_is_not_given_its_hosts_cache(tmp_path: Path) -> None:
    rows = [("1", "Data", "48K", "12"), ("1", "Instruction", "32K", "8"), ("2", "Unified", "2048K", "16")]
    host = reported(tmp_path, [*rows, ("3", "Unified", "491520K", "16")])
    found = caches(host, processors=2)
    assert (found.first, found.last) == (Cache(48 << 10, 12, 64), Cache(4 << 20, 16, 64))
    assert found.notes == (
        "last-level cache: 480 MiB are reported, which is the host's; 4 MiB are simulated",
    )
    assert found.first.whole == Cache(48 << 10, 768, 64)
    assert str(found.first) == "48 KiB, 12 ways"


def test_a_desktops_cache_is_its_own(tmp_path: Path) -> None:
    rows = [("1", "Data", "32K", "8"), ("2", "Unified", "512K", "8"), ("3", "Unified", "24576K", "12")]
    found = caches(reported(tmp_path, rows), processors=8)
    # 32768 sets of 12 ways are 24 MiB.
    assert found.last == Cache(24 << 20, 12, 64)
    assert not found.notes


def test_where_nothing_is_reported_it_is_said(tmp_path: Path) -> None:
    found = caches(tmp_path, processors=4)
    assert found.first.size == 32 << 10
    assert "reports no caches" in found.notes[0]
    odd = tmp_path / "odd"
    odd.mkdir()
    assert "reports no caches" in caches(reported(odd, [("1", "Data", "lots", "8")]), processors=4).notes[0]


@given(st.integers(1, 1 << 16), st.integers(1, 32))
def test_what_is_simulated_has_sets_in_a_power_of_two(lines: int, ways: int) -> None:
    found = Cache(64 * lines, ways, 64).simulable
    sets = found.size // (found.line * found.ways)
    assert sets & (sets - 1) == 0
    assert 32 * lines < found.size + 64 * ways
    assert found.size <= 64 * lines


def test_a_run_that_fails_leaves_its_reason(tmp_path: Path, monkeypatch) -> None:
    driver = Driver(tmp_path / "gone", (str(tmp_path / "gone"),), "f")
    shape = caches(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert simulate(driver, shape).signals.absent == {"cachegrind": "valgrind is not installed"}
    fake = tmp_path / "valgrind"
    fake.write_text(
        "#!/bin/sh\necho '==7== Process terminating with default action of signal 4' >&2\nexit 132\n"
    )
    fake.chmod(0o755)
    assert "signal 4" in simulate(driver, shape).signals.absent["cachegrind"]
    fake.write_text("#!/bin/sh\nexec /bin/sleep 5\n")
    assert "took over 0.1 s" in simulate(driver, shape, seconds=0.1).signals.absent["cachegrind"]
