"""What the other player of a TextArena game may say: moves that the game names, or all it knows."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, Final

_SQUARES: Final = [f"{column}{row}" for column in "abcdefgh" for row in range(1, 9)]


def _steps(start: str, end: str) -> bool:
    """Whether a move is one row on or back, straight or aslant."""
    return abs(int(start[1]) - int(end[1])) == 1 and abs(ord(start[0]) - ord(end[0])) <= 1


_BRACKETS: Final = re.compile(r"\[[^\[\]\n]{1,24}\]")

#: Every move that a game's rules know, for games that do not list those that are open.
_MOVES: Final[dict[str, list[str]]] = {
    "TicTacToe": [f"[{cell}]" for cell in range(9)],
    "ConnectFour": [f"[col {column}]" for column in range(7)],
    "Nim": [f"[{pile} {count}]" for pile, count in product(range(8), range(1, 10))],
    "IteratedMatchingPennies": ["[heads]", "[tails]"],
    "IteratedPrisonersDilemma": ["[cooperate]", "[defect]"],
    "IteratedRockPaperScissors": ["[rock]", "[paper]", "[scissors]"],
    "IteratedTwoThirdsAverage": [f"[{number}]" for number in range(101)],
    "PigDice": ["[roll]", "[hold]"],
    "KuhnPoker": ["[check]", "[bet]", "[call]", "[fold]"],
    "Breakthrough": [f"[{a}{b}]" for a, b in product(_SQUARES, _SQUARES) if _steps(a, b)],
}
#: Games that tell each player the moves that are open, in brackets, with every board.
_LISTED: Final = ("Othello", "GameOfPureStrategy", "SimpleTak", "Crusade")


def legal_moves(game: Any, name: str) -> list[str]:
    """Moves that may be legal now, in a fixed order; empty where we know of none."""
    base = name.partition("-v0")[0]
    if base in _MOVES:
        return list(_MOVES[base])
    if base not in _LISTED:
        return []
    told = game.state.observations[game.state.current_player_id]
    for _, text, _kind in reversed(told):
        moves = list(dict.fromkeys(_BRACKETS.findall(text)))
        if moves:
            return moves
    return []
