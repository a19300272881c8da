"""Projects of the running interpreter's own standard library: copies of modules, read when they are needed.

Each project mutates one module and holds five others to be searched. What the copies answer is recorded from
their original text, so the tasks fit whatever version of Python runs.
"""

# ruff: noqa: E501  one call a line

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

from refork.errors import CannotDo
from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.generated import Draw, trades
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.repair.package import Check

# Calls of standard modules that tests are recorded from; the form is that of the templates' calls.

#: Module -> the names its tests import and the calls they make, each with what it asks for.
MODULES: dict[str, str] = {
    "textwrap": """
wrap(<sentence 14>, <int 10|30>) ; breaking a note into lines of a given width
fill(<sentence 12>, <int 14|26>, initial_indent="* ", subsequent_indent="  ") ; a list entry with hanging indent
shorten(<sentence 12>, <int 14|40>) ; cutting a long note down to fit
dedent(<paragraph 4>) ; taking away the margin that all lines share
indent(<paragraph 3>, "> ") ; quoting a message
wrap(<sentence 8> + "-" + <word>, <int 5|9>, break_long_words=<choice True|False>) ; narrow columns with long words
""",
    "statistics": """
median(<ints 6|0|50>) ; the middle of some counts
median_grouped(<ints 7|1|9>) ; the middle of grouped data
quantiles(<ints 8|0|60>, n=<choice 3|4|5>) ; cutting data into equal parts
pvariance(<ints 6|0|30>) ; how much counts vary
multimode(<ints 8|0|4>) ; the most common values
linear_regression(<ints 5|0|9> + [10], <ints 6|0|40>) ; fitting a straight line
NormalDist(<int -5|5>, <int 1|4>).cdf(<int -4|8>) ; the share below a limit under a bell curve
harmonic_mean(<ints 4|1|30>) ; the average of speeds
""",
    "difflib": """
SequenceMatcher(None, <text 3>, <text 3>).ratio() ; how alike two phrases are
get_close_matches(<typo>, <vocabulary>, cutoff=0.5) ; suggestions for a misspelt word
unified_diff(<words 6>, <words 6>, lineterm="") ; the differences between two lists
ndiff(<words 4>, <words 4>) ; a line by line comparison
SequenceMatcher(None, <runs>, <runs>).get_opcodes() ; the steps that turn one record into another
context_diff(<words 5>, <words 5>, lineterm="", n=1) ; differences with some context
""",
    "fractions": """
Fraction(<int -40|40>, <int 1|30>) + Fraction(<int 1|9>, <int 1|12>) ; adding two ratios
Fraction(<choice "3/4"|" -7/3"|"1.25"|"2e-3"|"5"|"x">) ; reading a ratio from text
Fraction(<float -3|3>).limit_denominator(<int 3|40>) ; the nearest simple ratio
divmod(Fraction(<int -30|30>, <int 1|7>), Fraction(<int 1|9>, 4)) ; whole and rest of a division of ratios
round(Fraction(<int -90|90>, <int 2|9>), <choice 0|1>) ; rounding a ratio
Fraction(<int 1|9>, <int 2|5>) ** <int -3|3> ; the power of a ratio
Fraction(<int -9|9>, <int 1|5>) < Fraction(<int -9|9>, <int 1|5>) ; comparing two ratios
""",
    "heapq": """
merge(sorted(<ints 4|0|20>), sorted(<ints 3|0|20>), sorted(<ints 5|0|20>)) ; joining sorted lists
merge(sorted(<words 3>, key=len), sorted(<words 3>, key=len), key=len) ; joining lists that are sorted by length
nlargest(<int 1|4>, <ints 7|0|60>) ; the greatest few
nsmallest(<int 1|5>, <words 6>, key=len) ; the shortest few
[nsmallest(<int 1|3>, <ints 6|0|9>), nlargest(2, <words 5>, key=len)] ; both ends of a list
[heap := <ints 6|0|40>, heapify(heap), heappop(heap), heappushpop(heap, <int 0|40>), heap] ; taking the smallest of a pile
[heap := sorted(<ints 5|0|30>), heappush(heap, <int 0|30>), heapreplace(heap, <int 0|30>), heap] ; putting something on a pile
""",
    "bisect": """
bisect_left(sorted(<ints 8|0|12>), <int 0|12>) ; where a number belongs, before its equals
bisect_right(sorted(<ints 8|0|12>), <int 0|12>, <int 0|2>) ; where a number belongs, after its equals
bisect_right(sorted(<words 6>, key=len), <int 3|8>, key=len) ; where a length belongs
[row := sorted(<ints 6|0|15>), insort_right(row, <int 0|15>), row] ; keeping a list in order
[row := sorted(<words 5>, key=len), insort_left(row, <word>, key=len), row] ; keeping words in order of length
""",
    "colorsys": """
rgb_to_hsv(<float 0|1>, <float 0|1>, <float 0|1>) ; the hue and strength of a colour
hsv_to_rgb(<float 0|1>, <float 0|1>, <float 0|1>) ; mixing a colour from its hue
rgb_to_hls(<float 0|1>, <float 0|1>, <float 0|1>) ; the lightness of a colour
hls_to_rgb(<float 0|1>, <float 0|1>, <float 0|1>) ; a colour of given lightness
rgb_to_yiq(<float 0|1>, <float 0|1>, <float 0|1>) ; the signal of a colour on television
yiq_to_rgb(<float 0|1>, <float 0|1>, <float 0|1>) ; the colour of a television signal
""",
    "shlex": """
split(<shell>) ; taking a command line apart
split(<shell>, comments=True) ; taking a command line with a remark apart
split(<shell>, posix=False) ; taking a command line apart in the old way
quote(<text 2>) ; making a text safe for a command line
join(<words 3> + [<text 2>]) ; putting a command line together
list(shlex(<shell>, punctuation_chars=True)) ; the signs and words of a command
""",
    "string": """
capwords(<text 4>) ; a heading with capitals
Template("$name has ${count} $$ " + <word>).safe_substitute(name=<name>) ; filling in a letter
Template("$name has ${count} of $ " + <word>).substitute(name=<name>, count=<int 1|9>) ; filling in a faulty letter
Formatter().format("{0:>{1}} {name!r}", <word>, <int 6|12>, name=<name>) ; a text with aligned parts
Template("$" + <name> + " ${x} $y").get_identifiers() ; the blanks of a letter
Formatter().vformat("{} {a[0]}", [<word>], dict(a=<words 2>)) ; a text with parts from a list
""",
    "calendar": """
monthrange(<int 1990|2040>, <int 1|13>) ; the first weekday and the length of a month
Calendar(<int 0|6>).monthdayscalendar(<int 2000|2030>, <int 1|12>) ; a month in weeks
TextCalendar(<int 0|6>).formatmonth(<int 2000|2030>, <int 1|12>) ; the printed page of a month
leapdays(<int 1890|1990>, <int 1991|2100>) ; how many leap years lie between
timegm((<int 1971|2030>, <int 1|12>, <int 1|28>, <int 0|23>, 30, 0)) ; seconds of a date
weekday(<int 1950|2050>, <int 1|12>, <int 1|28>) ; the day of the week
list(Calendar(<int 0|6>).itermonthdays2(<int 2000|2030>, <int 1|12>))[:12] ; the days of a month with weekdays
""",
    "fnmatch": """
fnmatchcase(<word>, <pattern>) ; whether a name fits a pattern
filter(<vocabulary>, <pattern>) ; the names that fit a pattern
translate(<pattern>) ; the expression behind a pattern
translate(<pattern> + <choice "["|"[]a]"|"[a-"|"***"|"[!]x]">) ; the expression behind an odd pattern
fnmatchcase(<word> + ".txt", <pattern> + ".*") ; whether a file's name fits
""",
    "posixpath": """
normpath(<path>) ; a path without detours
join(<word>, <path>, <word>) ; putting paths together
split(<path>) ; folder and name of a path
splitext(<path>) ; the ending of a file's name
relpath("/" + <path>, "/" + <path>) ; the way from one folder to another
commonpath(["/a/" + <word> + "/x", "/a/" + <word> + "/y"]) ; the folder that paths share
basename(<path>) ; the last part of a path
dirname(<path>) ; the folder of a path
""",
    "ntpath": """
normpath(<winpath>) ; a path of Windows without detours
join(<winpath>, <winpath>) ; putting paths of Windows together
splitdrive(<winpath>) ; the drive of a path
split(<winpath>) ; folder and name of a Windows path
isabs(<winpath>) ; whether a Windows path is complete
commonpath(["C:\\\\a\\\\" + <word>, "c:/A/" + <word> + "/y"]) ; what Windows paths share
splitext(<winpath>) ; the ending of a name on Windows
""",
    "ipaddress": """
ip_network(<network>).num_addresses ; the size of a network
list(ip_network(<network>).hosts())[:4] ; the first hosts of a network
ip_address(<address>).is_private ; whether an address is internal
ip_address(<six>).compressed ; the short form of a long address
list(ip_network(<network>).subnets(prefixlen_diff=<int 1|2>))[:4] ; the parts of a network
ip_address(<address>) in ip_network(<network>) ; whether an address belongs to a network
ip_network(<network>).overlaps(ip_network(<network>)) ; whether two networks overlap
list(collapse_addresses([ip_network(<network>), ip_network(<network>)])) ; networks joined into larger ones
ip_interface(<network>).with_netmask ; an address with its mask
list(summarize_address_range(ip_address("10.0.0." + str(<int 1|40>)), ip_address("10.0.0.99"))) ; networks that cover a range
""",
    "graphlib": """
list(TopologicalSorter(<needs>).static_order()) ; the order in which steps can be done
[sorter := TopologicalSorter(<needs>), sorter.prepare(), sorter.get_ready(), sorter.is_active()][1:] ; what can be begun at once
[sorter := TopologicalSorter(<needs>), sorter.prepare(), ready := sorter.get_ready(), sorter.done(*ready), sorter.get_ready()][1:] ; what can be begun after the first steps
[sorter := TopologicalSorter(<needs>), sorter.add(<word>, <word>, <word>), list(sorter.static_order())][1:] ; the order after another step came in
TopologicalSorter(dict(a=["b"], b=[<choice "a"|"c">])).prepare() ; steps that wait for each other
""",
    "csv": """
Sniffer().sniff(<csvtext>).delimiter ; finding out what separates the columns of a file
Sniffer().has_header(<csvtext>) ; whether a file begins with headings
list(DictReader(<csvtext>.split("\\n"), delimiter=",")) ; reading a file with headings
list(DictReader(<csvtext>.split("\\n"), ["a", "b"], "rest", "-", delimiter=";")) ; reading rows that are too long or too short
Sniffer().sniff("'" + <word> + "', '" + <word> + "'\\n'a', 'b'\\n").quotechar ; finding out how texts are quoted
""",
    "getopt": """
getopt(<choice ["-a", "-b", "x"]|["-ab3", "y"]|["-c"]|["-b"]|["--", "-a"]|["-", "z"]>, "ab:") ; reading short options
getopt(["--" + <choice "name=3"|"name"|"nam=4"|"force"|"for"|"fo=1"|"n">, <word>], "", ["name=", "force", "format"]) ; reading long options
gnu_getopt([<word>, "-a", <word>, "--name", <word>], <choice "a"|"+a"|"ab:">, ["name="]) ; options that stand after arguments
gnu_getopt([<word>, "--na=" + <word>, "-b", <word>, "--", "-a"], "ab:", ["name="]) ; shortened options
""",
    "html": """
escape(<page>) ; making a text safe for a page
escape(<page>, quote=False) ; making a text safe but for quotes
unescape(<page>) ; the plain text of a page
unescape(<page> + <choice "&#128;"|"&#xD800;"|"&#1;"|"&#x110000;"|"&ampx"|"&noti">) ; odd signs on a page
""",
    "configparser": """
[p := ConfigParser(), p.read_string(<inifile>), p.sections(), p.options(p.sections()[0])] ; the sections of a file of settings
[p := ConfigParser(allow_no_value=True), p.read_string(<inifile>), [dict(p[name]) for name in p.sections()]] ; all settings of a file
[p := ConfigParser(), p.read_string(<inifile>), [p.get(name, "path", fallback="-") for name in p]] ; a setting that refers to another
[p := RawConfigParser(), p.read_dict(<sections>), p.set(p.sections()[0], "x", "1"), p.has_option(p.sections()[0], "x"), p.remove_section(p.sections()[1]), p.sections()] ; changing settings
[p := ConfigParser(), p.read_dict(dict(a=dict(x=<choice "yes"|"off"|"1"|"maybe">, n="<int 1|9>"))), p.getboolean("a", "x"), p.getint("a", "n")] ; settings as truth values and numbers
[p := ConfigParser(interpolation=ExtendedInterpolation()), p.read_dict(dict(a=dict(x="1"), b=dict(y=<choice "${a:x}2"|"$$x"|"${z}"|"${a:x">))), p.get("b", "y")] ; settings that refer to other sections
""",
    "urllib.parse": """
urlsplit(<url>).geturl() ; an address taken apart and put together again
urlparse(<url>) ; the parts of an address
urljoin(<url>, <choice "../a"|"/b?c"|"//host/d"|"?e=1"|"#f"|"g/./h">) ; following a link on a page
parse_qs(<queries>, keep_blank_values=<choice True|False>) ; the fields of a query
parse_qsl(<queries>) ; the fields of a query in order
quote(<text 2> + <choice "/ü"|"?&"|"%"|"~">, safe=<choice "/"|"">) ; an address with odd signs
unquote(<choice "a%20b"|"%C3%BC"|"%zz"|"a%2"|"%41%2f">) ; the plain text of an address
urlencode(<table 2>) ; a query written out
[urlsplit(<url>).port, urlsplit(<url>).hostname, urlsplit(<url>).username] ; the host of an address
""",
}


CALLS = 7
_FOLDERS = ("kit", "toolbox", "vendored", "lib", "shared")


def sources() -> tuple[str, ...]:
    """Names of the mutated modules; the first half of the projects takes every other one."""
    return tuple(MODULES)


@cache
def source_of(module: str) -> str:
    """The text of a standard module, without the lines that put compiled twins in the place of its functions.

    Raises:
        CannotDo: this Python comes without the text of its library.
    """
    path = getattr(importlib.import_module(module), "__file__", None)
    if not path or not Path(path).is_file() or not path.endswith(".py"):
        raise CannotDo(f"the text of the standard module {module!r} is not installed")
    text = Path(path).read_text(encoding="utf-8")
    rows = lines(text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.Try) and all(isinstance(one, ast.ImportFrom) for one in node.body):
            taken = node.body[0]
            if isinstance(taken, ast.ImportFrom) and (taken.module or "").startswith("_"):
                for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                    rows[row] = "\n"
    return "".join(rows)


@cache
def copied(module: str) -> tuple[str, dict[str, str], tuple[Check, ...], str]:
    """Name, files, checks (without answers) and mutated path of a standard module's project."""
    place = sources().index(module)
    dice = Dice("repair", "stdlib", module)
    folder = _FOLDERS[place % len(_FOLDERS)]
    others = dice.sample([one for one in sources() if one != module], 5)
    files = {f"{folder}/__init__.py": '"""Small tools."""\n'}
    for one in (module, *others):
        files[f"{folder}/{_file(one)}.py"] = source_of(one)
    trade = trades()[place]
    draw = Draw(dice, trade.goods, trade.places, trade.amount)
    exported = _tops(source_of(module))
    checks = []
    for line in MODULES[module].strip().split("\n"):
        call, _, about = line.rpartition(" ; ")
        used = tuple(name for name in _used(call) if name in exported)
        for _ in range(CALLS):
            checks.append(Check(f"{folder}.{_file(module)}", used[0], used, draw.filled(call), about))
    return f"std-{module}", dict(sorted(files.items())), tuple(checks), f"{folder}/{_file(module)}.py"


def _file(module: str) -> str:
    return module.replace(".", "_")


def _tops(source: str) -> set[str]:
    """Names that a module defines, in whatever branch."""
    found: set[str] = set()
    pending: list[ast.AST] = [*ast.parse(source).body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        else:
            pending += ast.iter_child_nodes(node)
    return found


def _used(call: str) -> list[str]:
    """Names that a call calls, as they first occur."""
    return list(dict.fromkeys(re.findall(r"(?<![\w.\"$])[A-Za-z_]\w*(?=\()", call)))
