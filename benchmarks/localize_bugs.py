"""Real bugs of known projects: who names the files and functions of the fix, without a model and a test run.

156 fixes of 12 projects that nothing was chosen on. ``parts/localize_bugs.py`` lists them, and says how to
make the folder of clones that ``--clones`` or REFORK_CLONES names. It takes half an hour to an hour.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from parts.localize_bugs import figures


def main() -> None:
    """Score the sealed bugs, plain and masked; the figures are the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same: there is no shorter form")
    parser.add_argument(
        "--clones", type=Path, default=os.environ.get("REFORK_CLONES"), help="folder of clones"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        default=os.environ.get("REFORK_BUG_SCORES"),
        help="keep every bug's score here, and go on from those kept",
    )
    args = parser.parse_args()
    found = figures(*(None if one is None else Path(one) for one in (args.clones, args.keep)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
