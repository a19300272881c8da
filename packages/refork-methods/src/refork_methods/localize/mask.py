"""Issues without the names that give the place away: the control for remembered repositories."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

from refork_methods.localize.gold import read_diff
from refork_methods.localize.terms import issue_terms

#: What stands for a masked name; searching skips it.
_WORD = re.compile(r"[A-Za-z_]\w*")
_CODE_LIKE = re.compile(r"_|[a-z][A-Z]|[A-Z].*[A-Z]")


def mask_issue(text: str, names: Iterable[str] = (), paths: Iterable[str] = ()) -> str:
    """The issue with names and paths replaced by numbered stand-ins, the same one for the same name.

    A path goes with its file name, its stem where the stem looks like code or is dotted, and every dotted
    tail of its module name. Names are masked wherever they stand as whole words, in any case.
    """
    stand_in: dict[str, str] = {}
    for path in sorted(set(paths), key=lambda one: (-len(one), one)):
        # Labels are counted, not entries: a file has several spellings.
        label = f"⟦file {len(set(stand_in.values())) + 1}⟧"
        for said in _spellings(path):
            stand_in.setdefault(said.lower(), label)
    count = len(set(stand_in.values()))
    for name in sorted(set(names), key=lambda one: (-len(one), one)):
        if len(name) > 1 and name.lower() not in stand_in:
            count += 1
            stand_in[name.lower()] = f"⟦name {count}⟧"
    if not stand_in:
        return text
    # Longest first: a name within a longer one must not break it up.
    options = "|".join(re.escape(said) for said in sorted(stand_in, key=lambda one: (-len(one), one)))
    # Not beside the brackets: an issue may be masked already, and "file" or "name" be among the names.
    pattern = re.compile(rf"(?<![\w⟦])(?:{options})(?![\w⟧])", re.IGNORECASE)
    return pattern.sub(lambda hit: stand_in[hit.group().lower()], text)


def mask_code(text: str) -> str:
    """The issue with everything that is written as code masked: code spans, identifiers, paths, error names.

    Needs nothing of the repository, so it is the same for every snapshot.
    """
    terms = issue_terms(text)
    names = [*terms.identifiers, *terms.errors]
    for span in terms.code:
        names += _WORD.findall(span)
    return mask_issue(text, [one for one in names if not keyword.iskeyword(one)], terms.paths)


def diff_names(diff: str, defined: Iterable[str] = ()) -> set[str]:
    """Identifiers on a diff's changed lines and in its hunk headers that would give the place away.

    Those written like code (``snake_case``, ``camelCase``), and those of ``defined`` (the repository's own
    symbols); a plain word such as ``value`` is left. Python's keywords and built-ins are.
    """
    known = set(defined)
    found: set[str] = set()
    for part in read_diff(diff):
        for hunk in part:
            changed = [line.value for line in hunk if line.is_added or line.is_removed]
            for name in _WORD.findall(" ".join([hunk.section_header or "", *changed])):
                plain = keyword.iskeyword(name) or hasattr(builtins, name)
                if not plain and (name in known or _CODE_LIKE.search(name.strip("_"))):
                    found.add(name)
    return found


def diff_paths(diff: str) -> set[str]:
    """The files that a diff touches, by their old and new names."""
    told: set[str] = set()
    for part in read_diff(diff):
        told |= {part.source_file.removeprefix("a/"), part.target_file.removeprefix("b/")}
    return told - {"/dev/null"}


def _spellings(path: str) -> set[str]:
    """How prose may name a file: its path, name and stem, and its module, whole and by its tails."""
    stem = path.rsplit("/", 1)[-1].split(".", 1)[0]
    told = {path, path.rsplit("/", 1)[-1]}
    if len(stem) > 2 and stem != "__init__":
        told.add(stem)
    parts = path.rsplit(".", 1)[0].removesuffix("/__init__").split("/")
    told |= {".".join(parts[n:]) for n in range(len(parts) - 1)}
    return told
