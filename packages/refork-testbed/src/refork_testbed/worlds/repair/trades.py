"""The trades that generated projects belong to: words for what their modules are about."""

# ruff: noqa: E501  one trade a row

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Trade:
    """Words of one trade; ``goods`` and ``places`` are what its test data is made of."""

    name: str
    item: str
    items: str
    group: str
    amount: str
    place: str
    person: str
    goods: tuple[str, ...]
    places: tuple[str, ...]

    def spoken(self, text: str) -> str:
        """A template's text in the words of this trade."""
        for mark, word in (
            ("qitems", self.items), ("qitem", self.item), ("qgroup", self.group), ("qamount", self.amount),
            ("qplace", self.place), ("qperson", self.person),
        ):  # fmt: skip
            text = text.replace(mark, word)
        return text


_ROWS = """
harbour   | vessel vessels fleet tonnage dock pilot | barge tug ferry cutter trawler yacht | north south mole basin
bakery    | loaf loaves oven weight counter baker | rye spelt roll bagel tart bun | front cellar market stall
clinic    | patient patients ward dosage practice nurse | saline gauze insulin splint mask syrup | east west annex lab
library   | volume volumes shelf pages desk reader | atlas novel poem guide diary comic | hall attic branch archive
orchard   | tree trees row harvest field picker | apple pear plum quince cherry medlar | slope valley ridge terrace
theatre   | play plays season seats stage actor | opera farce drama ballet revue mime | main studio garden barn
garage    | car cars depot mileage bay mechanic | brake clutch filter hose bulb wiper | pit ramp yard office
winery    | bottle bottles cellar vintage barrel grower | riesling merlot gamay pinot malbec syrah | hill bank cave press
museum    | exhibit exhibits collection visitors gallery curator | vase coin mask bust scroll mosaic | rotunda wing court vault
railway   | wagon wagons train load station guard | tanker hopper coach flatcar caboose sleeper | junction halt depot border
apiary    | hive hives colony honey meadow keeper | acacia clover heather linden thyme sage | forest heath brook hedge
brewery   | keg kegs batch volume tank brewer | pilsner stout porter bock lager amber | kettle cooler loft tap
school    | lesson lessons class marks room teacher | algebra music latin art biology chess | gym aula library court
airport   | flight flights airline delay gate steward | jet glider shuttle charter cargo heli | alpha bravo delta echo
hotel     | booking bookings chain nights room porter | single double suite loft cabin studio | lobby tower court garden
foundry   | casting castings mould heat furnace founder | bell gear valve anchor wheel plate | hall pit shed crane
nursery   | seedling seedlings bed height greenhouse gardener | tulip aster dahlia fern lupin iris | glass frame plot border
postoffice | parcel parcels route postage branch clerk | letter packet card crate tube roll | city village island suburb
mill      | sack sacks store grain wheel miller | wheat oats barley maize millet bran | upper lower left right
observatory | star stars catalogue brightness dome astronomer | vega rigel deneb altair spica mira | zenith horizon east west
"""


def trades() -> tuple[Trade, ...]:
    """The twenty trades, in order."""
    found = []
    for row in _ROWS.strip().split("\n"):
        name, words, goods, places = (part.strip() for part in row.replace(" | ", "|").split("|"))
        found.append(Trade(name, *words.split(), tuple(goods.split()), tuple(places.split())))  # type: ignore[call-arg, arg-type]
    return tuple(found)
