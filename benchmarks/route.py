"""Who should act: singular values, selection heads where standalone scores mislead, and written workflows.

A planted pool of four workers is worth something else in a harness than alone. A head fitted to standalone
scores, heads evolved by whole rollouts (from zero, and from that head), and REINFORCE on exactly as many
rollouts are put beside each other and beside closed forms, for six seeds. Then a tiny transformer learns to
write workflows of two steps by group policy gradient. Then votes that see each other: the engine's switch
against the closed forms. Last, real classifiers of real digits: a router that loses to its best worker is
warned of, one over specialists is said to win. And turns with roles, whose role rows evolution teaches.
"""

from __future__ import annotations

import argparse
import json
import time

from parts.route_cast import figures as figures_of_casts
from parts.route_conductor import all_parts
from parts.route_real import figures, report_real
from parts.route_real import rows as rows_of_real
from parts.route_scaffold import reinforce, report, stage1, stage2_ok_seeds, svf_error, trainings
from refork.types import Json


def main() -> None:
    """Run and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of the conductor, fewer updates")
    args = parser.parse_args()
    began = time.perf_counter()
    told: Json = {"svf_error": svf_error()}
    print(f"singular-value fine-tuning: largest deviation of any identity {told['svf_error']:.1e}\n")
    rows = trainings(range(6))
    print(report(rows))
    told |= {
        "stage1": round(stage1(rows), 4),
        "stage2_ok_seeds": stage2_ok_seeds(rows),
        "zero_ok_seeds": sum(row.zero >= 0.70 for row in rows),
        "further_ok_seeds": sum(row.further >= 0.70 for row in rows),
        "reinforce": round(reinforce(rows), 4),
    }
    told |= all_parts(args.quick)
    real = rows_of_real(range(2 if args.quick else 6))
    print(report_real(real))
    told |= figures(real)
    told |= figures_of_casts(range(1 if args.quick else 6))
    print(f"\n{time.perf_counter() - began:.0f} s")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
