"""Reading a generated tool before anything of it runs: what it may contain, and why not where it may not."""

from __future__ import annotations

import ast
import builtins
import io
import string
import symtable
import tokenize
import warnings
from collections.abc import Iterator

from refork.sandbox.inside.names import BUILTINS, MODULES

LONGEST = 64 * 1024  # characters of source
_INNER = (
    "ag_await ag_code ag_frame co_code co_consts co_names cr_await cr_code cr_frame cr_origin f_back "
    "f_builtins f_code f_globals f_lineno f_locals f_trace format_map func_globals gi_code gi_frame "
    "gi_yieldfrom mro tb_frame tb_next"
)
#: Attributes that lead from a value to frames, code and globals without an underscore in their names.
INNER = frozenset(_INNER.split())
#: Built-in names that a tool may not name.
FORBIDDEN = frozenset(dir(builtins)) - frozenset(BUILTINS)
_STATEMENTS = (ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
_NODES = {
    ast.AsyncFunctionDef: "async functions",
    ast.AsyncFor: "async loops",
    ast.AsyncWith: "async with",
    ast.Await: "await",
    ast.ClassDef: "classes",
    ast.Global: "global names",
}


def refusal(source: str) -> str | None:
    """Why this source may not run as a tool, naming the line; None where nothing speaks against it."""
    return parsed(source)[1]


def parsed(source: str) -> tuple[ast.Module | None, str | None]:
    """The syntax tree of a source and why it may not run; one of the two is None."""
    if len(source) > LONGEST:
        return None, f"the source is longer than {LONGEST} characters"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            found = (
                *_letters(source),
                *_tree(tree),
                *_builtins(tree, symtable.symtable(source, "<tool>", "exec")),
            )
    except SyntaxError as error:
        return None, f"it does not parse: {error.msg} (line {error.lineno})"
    except (ValueError, MemoryError, RecursionError, tokenize.TokenError) as error:
        return None, f"it does not parse: {error or type(error).__name__}"
    return (None, found[0]) if found else (tree, None)


def _letters(source: str) -> Iterator[str]:
    """Names in other letters than ASCII: Python folds some of them to names that stand elsewhere."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.ERRORTOKEN) and not token.string.isascii():
            yield f"the name {token.string!r} has letters beyond ASCII (line {token.start[0]})"


def _tree(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if not isinstance(statement, _STATEMENTS):
            yield f"a module may hold imports, constants and functions only (line {statement.lineno})"
        elif isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
            yield f"nothing may run when the module is loaded (line {statement.lineno})"
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and not _literal(statement):
            yield f"a module's names may be set to constants only (line {statement.lineno})"
    modules = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        for reason in (*_node(node), *_part(node, modules)):
            yield f"{reason} (line {getattr(node, 'lineno', 1)})"


def _part(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    """A part of an imported module that is not on the list."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = modules.get(node.value.id)
        if module in MODULES and node.attr not in MODULES[module]:
            yield f"{node.attr!r} of {module!r} is not on the list of what a tool may use"


def _literal(statement: ast.Assign | ast.AnnAssign) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if statement.value is None or not all(isinstance(target, ast.Name) for target in targets):
        return False
    try:
        ast.literal_eval(statement.value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _node(node: ast.AST) -> Iterator[str]:
    if type(node) in _NODES:
        yield f"{_NODES[type(node)]} are not allowed in a tool"
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        yield "decorators are not allowed in a tool"
    if isinstance(node, ast.Import):
        yield from (_module(alias.name) for alias in node.names if alias.name not in MODULES)
    if isinstance(node, ast.ImportFrom):
        yield from _from(node)
    if isinstance(node, ast.Attribute | ast.MatchClass):
        yield from _attributes(node)
    for name in _identifiers(node):
        if not name.isascii():
            yield f"the name {name!r} has letters beyond ASCII"
        if name.startswith("__"):
            yield f"{name!r}: names with two leading underscores are Python's own"


def _builtins(tree: ast.Module, top: symtable.SymbolTable) -> Iterator[str]:
    """Built-in names that are meant as such: a parameter called ``id`` or ``type`` is the tool's own."""
    own = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    scopes = [top]
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            outside = symbol.is_global() or scope is top
            if name in FORBIDDEN and outside and name not in own:
                lines = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
                yield f"the built-in name {name!r} may not be used in a tool (line {min(lines, default=1)})"


def _module(name: str) -> str:
    return f"{name!r} is not on the list of modules that a tool may import"


def _from(node: ast.ImportFrom) -> Iterator[str]:
    if node.level or node.module not in MODULES:
        yield _module("." * node.level + (node.module or ""))
        return
    for alias in node.names:
        if alias.name not in MODULES[node.module]:
            yield f"{alias.name!r} of {node.module!r} is not on the list of what a tool may import"


def _attributes(node: ast.Attribute | ast.MatchClass) -> Iterator[str]:
    for name in [node.attr] if isinstance(node, ast.Attribute) else node.kwd_attrs:
        if name.startswith("_") or name in INNER:
            yield f"the attribute {name!r} may not be used in a tool"
        # "{0.x}".format(y) looks attributes up by text, which nobody has read.
        if name == "format" and not (isinstance(node, ast.Attribute) and _plain_format(node.value)):
            yield "format is allowed on a string constant whose fields have no '.' or '['; an f-string is"


def _plain_format(value: ast.expr) -> bool:
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return False
    try:
        fields = list(string.Formatter().parse(value.value))
    except ValueError:
        return False
    # A field may stand within another's width, where attributes are looked up as well.
    return not any(
        "." in (name or "") or "[" in (name or "") or "{" in (spec or "") for _, name, spec, _ in fields
    )


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Every identifier that a node holds itself, whatever its field is called."""
    if isinstance(node, ast.Constant):
        return
    for field, value in ast.iter_fields(node):
        if field == "type_comment":
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                yield one
