"""What stage 2 begins with, by name: an environment to train and to test in, and a head to begin from."""

from __future__ import annotations

from pathlib import Path

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.registry import part
from refork.tree import Tree
from refork.worlds.open import open_world
from refork_methods.route.acting import Rollouts
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.card import HeadCard, load_head
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import WorkerPool
from refork_methods.route.tree_rollouts import TreeRollouts


def open_rollouts(
    world: str,
    pool: WorkerPool | None,
    backbone: RouterBackbone | None,
    folder: Path,
    *,
    tasks: int,
    test: int,
    seed: int,
    settings: Sampling | None = None,
) -> tuple[Rollouts, Rollouts, int]:
    """Rollouts to train and to test on (no task in common), and the width of a state.

    ``scaffold`` is the planted environment; any other world is done by the pool, recorded in FOLDER/tree.db.

    Raises: BadInput for a world without pool or backbone, and as the world itself.
    """
    if world == "scaffold":
        scaffold = part("route.scaffold", "refork-testbed")
        return scaffold(seed), scaffold(seed, size=test, split=1), scaffold.WIDTH
    if pool is None or backbone is None:
        raise BadInput("a world needs --pool (who works) and --backbone (what the head reads)")
    place = open_world(world)
    train, held = place.tasks("train", tasks, seed), place.tasks("held-out", test, seed)
    folder.mkdir(parents=True, exist_ok=True)
    tree = Tree.open(folder / "tree.db")
    width = int(backbone.states([held[0].prompt]).shape[1])
    first, second = (
        TreeRollouts(pool, place, part, backbone, tree=tree, settings=settings) for part in (train, held)
    )
    return first, second, width


def starting_head(
    folder: Path | None,
    workers: tuple[str, ...],
    width: int,
    backbone: RouterBackbone | None,
    *,
    svf: bool = False,
) -> tuple[SelectionHead, HeadCard | None]:
    """A head from a folder (checked against the backbone), or zeros; ``svf`` gives it offsets of 0.

    Raises: Mismatch and WrongWeights as :meth:`SelectionHead.require`; BadInput for offsets of no backbone.
    """
    card: HeadCard | None = None
    if folder is not None:
        head, card = load_head(folder)
        if backbone is not None:
            head.require(backbone, str(folder))
    else:
        head = SelectionHead.zero(workers, width)
        head = head.on(backbone) if backbone is not None else head
    if svf and head.offsets is None:
        if backbone is None:
            raise BadInput("singular values are moved in a backbone", hint="name one with --backbone")
        adapter = backbone.adapter()
        head = head.with_offsets(tuple(adapter.counts), adapter.zeros().cpu().numpy())
    return head, card
