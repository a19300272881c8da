"""Amounts of money as exact decimals."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from refork_methods.pin.checks.base import CannotJudge

SIGNS = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}
_AMOUNT = re.compile(
    r"(?P<before>US\$|[$€£¥₹]|[A-Z]{3})?\s*(?P<sign>[-+])?\s*(?P<second>US\$|[$€£¥₹])?\s*"
    r"(?P<number>\d[\d.,'\s]*(?:[eE][-+]?\d{1,2})?|\.\d+)\s*(?P<after>US\$|[$€£¥₹]|[A-Z]{3}|DOLLARS?)?",
)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount; ``currency`` is None where none is named."""

    amount: Decimal
    currency: str | None


def money(value: Any) -> Money:
    """The amount that a JSON value states: a number, or a text such as ``$1,000.50`` or ``100.01 USD``.

    A comma before exactly three digits groups thousands, any other is the decimal mark; where both marks
    occur the last one is decimal. Raises CannotJudge for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise CannotJudge(f"{value!r} is no amount")
    if not isinstance(value, str):
        # repr gives the digits that were written: Decimal(100.1) itself is 100.0999..., below a limit of
        # 100.1.
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            raise CannotJudge(f"{value!r} is no amount")
        return Money(number, None)
    text = unicodedata.normalize("NFKC", value).strip().upper()
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise CannotJudge(f"{value!r} is no amount")
    named = {_currency(found[part]) for part in ("before", "second", "after") if found[part]}
    if len(named) > 1:
        raise CannotJudge(f"{value!r} names two currencies")
    number = Decimal(_digits(found["number"].strip(), value))
    return Money(-number if found["sign"] == "-" else number, named.pop() if named else None)


def _currency(text: str) -> str:
    return "USD" if text.startswith("DOLLAR") else SIGNS.get(text, text)


def _digits(text: str, value: str) -> str:
    """Digits with at most one decimal point, from any way of grouping them."""
    body, mark, power = text.partition("E")
    body = re.sub(r"(?<=\d)['\s](?=\d{3}(?:\D|$))", "", body)
    dot, comma = body.rfind("."), body.rfind(",")
    if dot >= 0 and comma >= 0:
        point, group = (".", ",") if dot > comma else (",", ".")
    elif comma >= 0:
        point, group = ("", ",") if re.fullmatch(r"\d{1,3}(,\d{3})+", body) else (",", "")
    else:
        point, group = ("", ".") if body.count(".") > 1 else (".", "")
    whole, _, part = body.partition(point) if point else (body, "", "")
    if group and group in whole and not re.fullmatch(rf"\d{{1,3}}({re.escape(group)}\d{{3}})+", whole):
        raise CannotJudge(f"{value!r} is no amount")
    whole = whole.replace(group, "") if group else whole
    if not re.fullmatch(r"\d*", whole) or not re.fullmatch(r"\d*", part) or not whole + part:
        raise CannotJudge(f"{value!r} is no amount")
    return f"{whole or 0}.{part or 0}{mark}{power}"
