from __future__ import annotations

import networkx as nx
import pytest

from refork_methods.localize.callgraph import FAR, MOST, NEAR
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.snapshot import Snapshot

FILES = {
    "shop/__init__.py": "from .cart import Cart\nfrom .money import *\nfrom . import money as cash\n",
    "shop/money.py": "def cents(x):\n    return rounded(x)\n\ndef rounded(x):\n    return int(x)\n\n"
    "def _hidden(): pass\n",
    "shop/base.py": "class Base:\n    def __init__(self): pass\n    def check(self): pass\n"
    "    def total(self): pass\n",
    "shop/cart.py": (
        "import shop.money\nimport shop.money as m\nfrom shop.base import Base as B\n\n\n"
        "class Cart(B):\n"
        "    def __init__(self, items):\n        super().__init__()\n\n"
        "    def total(self):\n        self.check()\n        return shop.money.cents(1) + m.rounded(2)\n\n"
        "    @classmethod\n    def make(cls):\n        def build():\n            return cls.make2()\n"
        "        return build()\n\n"
        "    @classmethod\n    def make2(cls): return Cart([])\n\n\n"
        "def run(cart, other):\n    cart.total()\n    other.nowhere()\n    len(cart)\n"
        "    B.check(cart)\n    other().total()\n"
    ),
    "main.py": (
        "from shop import Cart, cents, cash\nimport shop\n\n\n"
        "def main():\n    c = Cart([])\n    cents(3)\n    cash.rounded(1)\n    shop.Cart.make()\n"
        "    shop.money.cents(1)\n"
        "    c.get('x')\n    c.lonely()\n    unknown()\n"
    ),
    "far.py": "class Far:\n    def lonely(self): pass\n    def get(self, k): pass\n",
}


@pytest.fixture(scope="module")
def calls() -> nx.DiGraph[str]:
    return RepoIndex.build(Snapshot.from_files(FILES), words=False).calls


def of(calls: nx.DiGraph[str], caller: str) -> dict[str, float]:
    return {callee: calls.edges[caller, callee]["weight"] for callee in calls.successors(caller)}


def test_scopes_imports_and_re_exports(calls: nx.DiGraph[str]) -> None:
    assert of(calls, "main.py::main") == {
        "shop/cart.py::Cart": 1.0,
        "shop/cart.py::Cart.__init__": 1.0,
        "shop/money.py::cents": 1.0,
        "shop/money.py::rounded": 1.0,
        "shop/cart.py::Cart.make": 1.0,
        "far.py::Far.lonely": FAR,
    }
    assert of(calls, "shop/money.py::cents") == {"shop/money.py::rounded": 1.0}


def test_self_super_and_base_classes(calls: nx.DiGraph[str]) -> None:
    assert of(calls, "shop/cart.py::Cart.total") == {
        "shop/base.py::Base.check": 1.0,
        "shop/money.py::cents": 1.0,
        "shop/money.py::rounded": 1.0,
    }
    assert of(calls, "shop/cart.py::Cart.__init__") == {"shop/base.py::Base.__init__": 1.0}
    assert of(calls, "shop/cart.py::Cart.make") == {"shop/cart.py::Cart.make.build": 1.0}
    assert of(calls, "shop/cart.py::Cart.make.build") == {"shop/cart.py::Cart.make2": 1.0}


def test_unknown_objects_share_what_a_name_is_worth(calls: nx.DiGraph[str]) -> None:
    assert of(calls, "shop/cart.py::run") == {
        "shop/cart.py::Cart.total": NEAR / 2,
        "shop/base.py::Base.total": NEAR / 2,
        "shop/base.py::Base.check": 1.0,
    }
    assert not calls.edges["shop/cart.py::run", "shop/base.py::Base.total"]["sure"]
    assert calls.edges["shop/cart.py::run", "shop/base.py::Base.check"]["sure"]


def test_a_name_that_fits_too_much_says_nothing() -> None:
    files = {f"m{i}.py": "class A:\n    def act(self): pass\n" for i in range(MOST + 1)}
    files["use.py"] = "def use(x):\n    x.act()\n"
    assert RepoIndex.build(Snapshot.from_files(files), words=False).calls.number_of_edges() == 0
    del files["m0.py"]
    graph = RepoIndex.build(Snapshot.from_files(files), words=False).calls
    assert sorted(data["weight"] for *_, data in graph.edges(data=True)) == [FAR / MOST] * MOST


def test_circles_end() -> None:
    files = {
        "a.py": "from b import f, C\nclass A(C): pass\ndef g():\n    f()\n    A().h()\n    A.x()\n",
        "b.py": "from a import f, A\nclass C(A): pass\nfrom a import *\nfrom b import *\n",
    }
    graph = RepoIndex.build(Snapshot.from_files(files), words=False).calls
    assert set(graph.successors("a.py::g")) == {"a.py::A"}


def test_every_symbol_is_a_node_and_edges_have_lines(calls: nx.DiGraph[str]) -> None:
    index = RepoIndex.build(Snapshot.from_files(FILES), words=False)
    assert set(calls.nodes) == {symbol.id for symbol in index.symbols}
    for caller, _, data in calls.edges(data=True):
        symbol = index.symbols[index.number(caller)]
        assert symbol.start <= data["line"] <= symbol.end
        assert 0 < data["weight"] <= 1
        assert data["sure"] == (data["weight"] == 1)
