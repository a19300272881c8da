"""Names that a package of somebody else registers, as if it were installed beside Refork."""

from importlib.metadata import EntryPoint

from refork import registry


def install(monkeypatch, folder, text, **names):
    """A package of one module, ``other_house``, with entry points: ``kind_name="attribute"`` of it.

    Undone by ``monkeypatch``; the caller clears the cache of names afterwards (see :func:`forget`).
    """
    (folder / "other_house.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "other_house", raising=False)
    theirs = [
        EntryPoint(name.partition("_")[2], f"other_house:{what}", registry.group(name.partition("_")[0]))
        for name, what in names.items()
    ]
    ours = registry.entry_points

    def found(group):
        return [*ours(group=group), *(point for point in theirs if point.group == group)]

    monkeypatch.setattr(registry, "entry_points", found)
    registry.registered.cache_clear()


def forget():
    """Look names up anew."""
    registry.registered.cache_clear()
