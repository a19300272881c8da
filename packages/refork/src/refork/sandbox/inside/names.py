"""What a generated tool may name: modules with the parts of each, and built-in functions.

A part is listed where it computes values and nothing else. Left out on purpose: whatever looks attributes up
by a string (operator.attrgetter, string.Formatter, functools.update_wrapper), runs text
(typing.get_type_hints) or reaches files, processes and clocks.
"""

from __future__ import annotations

_MATH = (
    "acos asin atan atan2 ceil comb copysign cos degrees dist e exp fabs factorial floor fmod frexp fsum gcd "
    "hypot inf isclose isfinite isinf isnan isqrt lcm ldexp log log10 log1p log2 modf nan perm pi pow prod "
    "radians remainder sin sqrt tan tau trunc"
)
_ITERTOOLS = (
    "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse "
    "groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest"
)
_OPERATOR = (
    "add and_ concat contains countOf eq floordiv ge getitem gt indexOf invert is_ is_not itemgetter le lt "
    "mod mul ne neg not_ or_ pos pow sub truediv truth xor"
)
_TYPING = (
    "Any Callable Dict FrozenSet Generator Iterable Iterator List Literal Mapping Optional Sequence Set "
    "Tuple Union"
)
_RE = (
    "A ASCII DOTALL I IGNORECASE M MULTILINE Match Pattern S VERBOSE X compile escape findall finditer "
    "fullmatch match search split sub subn"
)

#: Module -> the names that a tool finds in it.
MODULES: dict[str, tuple[str, ...]] = {
    "bisect": ("bisect", "bisect_left", "bisect_right", "insort"),
    "calendar": ("day_abbr", "day_name", "isleap", "month_abbr", "month_name", "monthrange", "timegm"),
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque"),
    "datetime": ("UTC", "date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal", "ROUND_DOWN", "ROUND_HALF_EVEN", "ROUND_HALF_UP", "ROUND_UP"),
    "fractions": ("Fraction",),
    "functools": ("cmp_to_key", "partial", "reduce"),
    "heapq": (
        "heapify",
        "heappop",
        "heappush",
        "heappushpop",
        "heapreplace",
        "merge",
        "nlargest",
        "nsmallest",
    ),
    "itertools": tuple(_ITERTOOLS.split()),
    "json": ("JSONDecodeError", "dumps", "loads"),
    "math": tuple(_MATH.split()),
    "operator": tuple(_OPERATOR.split()),
    "re": tuple(_RE.split()),
    "statistics": (
        "fmean",
        "mean",
        "median",
        "median_high",
        "median_low",
        "mode",
        "pstdev",
        "stdev",
        "variance",
    ),
    "string": ("ascii_letters", "ascii_lowercase", "ascii_uppercase", "capwords", "digits", "punctuation"),
    "textwrap": ("dedent", "fill", "indent", "shorten", "wrap"),
    "typing": tuple(_TYPING.split()),
}

_ERRORS = (
    "ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError "
    "NotImplementedError OverflowError PermissionError RuntimeError StopIteration TimeoutError TypeError "
    "ValueError ZeroDivisionError"
)
_FUNCTIONS = (
    "abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float format "
    "frozenset hash hex int isinstance issubclass iter len list map max min next object oct ord pow print "
    "range repr reversed round set slice sorted str sum tuple zip"
)
#: Built-in functions and errors that a tool may name; ``print`` writes nowhere.
BUILTINS: tuple[str, ...] = ("False", "None", "True", *_FUNCTIONS.split(), *_ERRORS.split())
