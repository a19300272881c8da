"""Letting go of worker threads changes no product."""

import torch

from refork.policies import workers


def test_products_go_on_after_workers_are_gone():
    torch.manual_seed(0)
    a, b = torch.randn(300, 200), torch.randn(200, 100)
    before, threads = a @ b, torch.get_num_threads()
    workers.release_workers()
    assert torch.get_num_threads() == threads
    assert torch.equal(a @ b, before)


def test_where_there_is_nothing_to_let_go_nothing_happens(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "_MAPS", tmp_path / "none")
    assert workers.release_workers() is False
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r--p 0 00:00 0 /nowhere/libgomp.so.1\n")
    monkeypatch.setattr(workers, "_MAPS", maps)
    assert workers.release_workers() is False
