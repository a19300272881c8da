"""Texts that the generated projects are made of.

A block is ``## key | file names`` and a module's text. ``# names:`` lists functions with their other names;
``@key`` in an import stands for the module of another block; qitem, qgroup, qamount, qplace and
qperson for words of the project's trade. After ``---`` come the calls that its tests make, with fields for
drawn arguments, and what each asks for in plain words.
"""

from refork_testbed.worlds.repair.templates.numbers import NUMBERS
from refork_testbed.worlds.repair.templates.text import TEXT
from refork_testbed.worlds.repair.templates.trade import TRADE

BLOCKS = (NUMBERS, TEXT, TRADE)

__all__ = ["BLOCKS"]
