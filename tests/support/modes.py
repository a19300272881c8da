"""What opening a tree in each mode does, whatever stores it."""

import pytest

from refork.errors import BadInput, NotATree, TreeError
from refork.tree import NewNode, Producer, Tree


def check_modes(place, missing):
    """``place``: where no tree is yet; ``missing``: what reading it says."""
    with pytest.raises(NotATree, match=missing):
        Tree.open(place, "r")
    Tree.open(place, "x").close()
    with pytest.raises(TreeError, match="exists already"):
        Tree.open(place, "x")
    with pytest.raises(BadInput, match="mode"):
        Tree.open(place, "w")
    with Tree.open(place, "r") as tree:
        for write in (
            lambda: tree.append(NewNode(kind="task")),
            lambda: tree.put_blob(b"x"),
            lambda: tree.add_producer(Producer("p")),
        ):
            with pytest.raises(TreeError, match="reading only"):
                write()
        assert len(tree) == 0
