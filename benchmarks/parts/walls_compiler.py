"""The compiler's walls: disguises that try to read a planted file, and bombs, each told by its effect."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from refork.sandbox.jailed import WAYS, Way, only
from support.compiler_attacks import Planted, try_all, try_bomb, try_walls
from support.compiler_disguises import BOMBS, DISGUISES


def compiler(quick: bool, ways: tuple[Way, ...] = WAYS) -> dict[str, int]:
    """Disguises tried, those of which anything came back or beside, and whether every bomb was bounded.

    Each disguise is tried on the jail alone, with no screen and any flags, and as a candidate of a search.
    ``ways``: of holding the tools back, the first that the system grants; ``("landlock",)`` goes without
    namespaces.
    """
    effects: dict[str, tuple[str, ...]] = {}
    with only(*ways), Planted() as planted, tempfile.TemporaryDirectory(prefix="refork-bombs-") as folder:
        for one in DISGUISES:
            tried = (try_walls(one, planted), try_all(one, planted))
            effects[one.name] = tuple(effect for each in tried for effect in each.effects)
        blown = [try_bomb(one, Path(folder), 1.0 if quick else 10.0) for one in BOMBS]
    return {
        "compiler_disguises": len(DISGUISES),
        "leaks": sum(bool(found) for found in effects.values()),
        "compiler_bombs_bounded": int(all(one.bounded and one.said != "built" for one in blown)),
    }
