"""A script that plays the guessing game by chance, within what it was told."""

import re

from refork.policies.scripted import ScriptedPolicy


def guesser(argument=""):
    """``guesser``: any digit that the answers leave, each as likely."""

    def distribution(text):
        if text[-1:].isdecimal():
            return {"": 1.0}  # the end of the turn
        top = int(text.rpartition(" to ")[2][:1])
        low = max([0, *map(int, re.findall(r"(\d): higher", text))])
        high = min([top + 1, *map(int, re.findall(r"(\d): lower", text))])
        left = range(low + 1, high)
        return {str(n): 1 / len(left) for n in left}

    return ScriptedPolicy.from_text(distribution, name="scripted:guesser")
