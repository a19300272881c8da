"""The words of invented worlds: names, sentences and their slots. All are plain lower-case words."""

from __future__ import annotations

_BEGIN = (
    "bel", "dor", "fen", "gar", "hal", "jun", "kes", "lor",
    "mir", "nov", "pel", "ras", "sol", "tar", "vel", "zan",
)  # fmt: skip


def _stems(ends: str) -> tuple[str, ...]:
    return tuple(begin + end for begin in _BEGIN for end in ends.split())


TOWNS = _stems("amora iwick oholm astad ufell egard oburg imind astrand ewald")
GIVEN = _stems("ra eno olin adis imo aka eve otu isha ari")
SURNAMES = _stems("akwin oberg asen idal ustrom avik erud ohaug ilund amoen")
FIRMS = _stems("avel itor enix opex udyn agon ilux ezim orok afab")
WARES = _stems("abo iki ezu olo upi amu ita evo one agi")
FORMS = ("works", "mills", "yards", "glass", "press")
GOODS = ("lamp", "clock", "kettle", "chair", "stove", "radio", "loom", "pump")
REGIONS = ("lowlands", "highlands", "islands", "marshes", "forests", "plains", "coast", "valley")
TRADES = ("potter", "weaver", "baker", "smith", "printer", "mason", "painter", "tailor")

YEARS = (1700, 1999)
PRICES = (5, 400)

#: Table -> columns. The name is the primary key and the title of the page.
COLUMNS: dict[str, tuple[str, ...]] = {
    "town": ("name", "region", "bridge", "library"),
    "person": ("name", "town", "trade", "born", "prize"),
    "company": ("name", "town", "founder", "founded"),
    "product": ("name", "company", "launched", "price"),
}
NUMBERS = frozenset({"bridge", "library", "born", "prize", "founded", "launched", "price"})
#: Column -> the table whose name it holds.
LINKS = {"town": "town", "founder": "person", "company": "company"}

#: What a page says of its row; every column stands in one sentence.
SENTENCES: dict[str, tuple[str, ...]] = {
    "town": (
        "{name} lies in the {region} .",
        "{name} built a bridge in {bridge} .",
        "{name} opened a library in {library} .",
    ),
    "person": (
        "{name} is a {trade} from {town} .",
        "{name} was born in {born} .",
        "{name} won a prize in {prize} .",
    ),
    "company": (
        "{name} has its seat in {town} .",
        "{name} was founded by {founder} in {founded} .",
    ),
    "product": (
        "{name} is made by {company} .",
        "{name} was launched in {launched} .",
        "{name} costs {price} crowns .",
    ),
}
#: What a page lists of the rows that name its own: (sentence, table, column).
LISTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "town": (
        ("companies of {name} : {items} .", "company", "town"),
        ("people of {name} : {items} .", "person", "town"),
    ),
    "person": (("companies founded by {name} : {items} .", "company", "founder"),),
    "company": (("products of {name} : {items} .", "product", "company"),),
    "product": (),
}
BETWEEN = " ; "

#: Words of a query that say nothing of what is searched.
_STOP = """
a an and are as at by did do does for from has have how in is it its of on or s that the their there these
this to was were what when where which who whom whose will with
"""
STOP = frozenset(_STOP.split())


def vocabulary() -> tuple[str, ...]:
    """Every word that a page of an invented world can hold, sorted."""
    said = [s for kind in SENTENCES.values() for s in kind]
    said += [s for kind in LISTS.values() for s, _, _ in kind]
    words = {word for text in said for word in text.split() if "{" not in word}
    names = (TOWNS, GIVEN, SURNAMES, FIRMS, WARES, FORMS, GOODS, REGIONS, TRADES)
    words.update(word for group in names for word in group)
    for low, high in (YEARS, PRICES):
        words.update(str(number) for number in range(low, high + 1))
    return tuple(sorted(words | set(BETWEEN.split())))
