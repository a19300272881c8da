"""Calls of expf made arithmetic that vectorises."""

from __future__ import annotations

from dataclasses import replace

from refork_methods.kernel.rewrite.rule import Changed, Parameters, Rule, refuse
from refork_methods.kernel.rewrite.syntax import (
    Call,
    Expr,
    expressions,
    inside,
    map_expr,
    map_exprs,
    statements,
)
from refork_methods.kernel.rewrite.unit import Unit

#: exp(x) = 2^n exp(r), |r| <= log(2) / 2, with the polynomial of Cephes' expf. Conversions to int round, as
#: adding and taking away a large number would be folded away by -ffast-math; masks, as gcc vectorises no
#: branches on numbers that may be NaN. Above 88 infinite, below -87 zero.
SOURCE = """\
static inline float refork_expf(float x) {
    int high = -(x > 88.0f), low = -(x < -87.0f), bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits &= ~(high | low);
    float inside, power;
    __builtin_memcpy(&inside, &bits, sizeof bits);
    float scaled = inside * 1.44269504f;
    int n = (int)(scaled + 128.5f) - 128;
    float r = inside - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
    float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r
               + 1.6666665459e-1f) * r + 5.0000001201e-1f;
    bits = (int)((unsigned)(n + 127) << 23);
    __builtin_memcpy(&power, &bits, sizeof bits);
    float made = (p * r * r + r + 1.0f) * power;
    __builtin_memcpy(&bits, &made, sizeof bits);
    bits = (bits & ~(high | low)) | (high & 0x7f800000);
    __builtin_memcpy(&made, &bits, sizeof bits);
    return made;
}
"""


def _make(unit: Unit, given: Parameters) -> Changed:
    calls = [
        p for s in statements(unit.body) for e in expressions(s) for p in inside(e) if isinstance(p, Call)
    ]
    if not any(call.name == "expf" for call in calls):
        raise refuse("no call of expf")

    def inlined(part: Expr) -> Expr:
        return Call("refork_expf", part.args) if isinstance(part, Call) and part.name == "expf" else part

    body = map_exprs(unit.body, lambda expr: map_expr(expr, inlined))
    return Changed(replace(unit, body=body).with_top(SOURCE), reassociates=True)


RULE = Rule("fast_exp", ("SlowOps", "CpuScalarFallback", "CallOverhead"), lambda unit: [{}], _make)
