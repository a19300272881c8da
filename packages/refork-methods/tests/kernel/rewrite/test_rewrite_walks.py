"""Pointers that walk are read as subscripts, where that is what they are; sums in memory as sums."""

from __future__ import annotations

import pytest

from kernel.rewrite.kernels import BY_NAME, FLAGS
from refork_methods.kernel.rewrite import apply, moves
from refork_methods.kernel.rewrite.syntax import Loop, Opaque, statements
from refork_methods.kernel.rewrite.unit import read_unit

HEAD = "void run(int n, float *x, float *y) { %s }"


def names(source: str) -> set[str]:
    """Moves that are offered once ``restrict`` is promised."""
    key = [one for one in moves(source, "run", FLAGS) if one.name == "restrict"]
    made = apply(source, "run", FLAGS, key[0])[0] if key else source
    return {one.name for one in moves(made, "run", FLAGS)}


def test_a_product_by_walking_pointers_is_the_product_by_subscripts() -> None:
    shown = read_unit(BY_NAME["walking"].source, "run").render()
    assert "s += a[i * n + k] * b[j + k * n];" in shown
    assert "c[i * n + j] = s;" in shown
    assert "register_tile" in names(BY_NAME["walking"].source)


def test_a_sum_in_memory_that_starts_at_zero_is_a_sum() -> None:
    source = BY_NAME["in_memory"].source
    offered = moves(source, "run", FLAGS)
    assert {"register_tile", "interchange", "scalar_sum"} <= {one.name for one in offered}
    (move,) = (one for one in offered if one.name == "scalar_sum")
    made = apply(source, "run", FLAGS, move)[0]
    assert "float c_sum = 0;" in made
    assert made.count("c[i * n + j]") == 1


@pytest.mark.parametrize(
    "body",
    [
        # Where it stands after a loop that may not run is not known.
        "for (int i = 0; i < n; i++) *y++ = x[i]; y[0] = 1;",
        "for (int i = 0; i < n; i++) { *y++ = *x; if (x[i] > 0) x += 2; }",
        "for (int i = 0; i < n; i++) { *y++ = 1; y += n; }",
        "for (int i = 0; i < n; i++) { n--; y += n; *y = 1; }",
    ],
)
def test_what_walks_in_another_way_is_not_understood(body: str) -> None:
    unit = read_unit(HEAD % body, "run")
    assert not any(isinstance(stmt, Loop) for stmt in statements(unit.body))
    assert any(isinstance(stmt, Opaque) for stmt in statements(unit.body))


def test_a_place_before_and_after_the_step_is_told_apart() -> None:
    body = "for (int i = 0; i < n; i++) { y[0] = 1; y += 3; y[1] = 2; }"
    shown = read_unit(HEAD % body, "run").render()
    assert "y[i * 3] = 1;" in shown
    assert "y[i * 3 + 3 + 1] = 2;" in shown


def test_of_two_pointers_of_a_name_neither_is_replaced() -> None:
    shown = read_unit(BY_NAME["two_of_a_name"].source, "run").render()
    assert shown.count("row[0]") == 2


def test_a_counter_that_hides_a_variable_is_the_users_to_rename() -> None:
    from refork.errors import BadInput

    with pytest.raises(BadInput, match="i hides another i"):
        read_unit(HEAD % "int i = 0; for (int i = 0; i < n; i++) ; x[0] = i;", "run")
