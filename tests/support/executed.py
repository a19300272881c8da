"""Which lines of the package ran, without a tracer.

Until Python 3.12 a tracer is called for every line of every library too, which doubled the time of the whole
suite. Here every statement of the package is compiled with a mark before it, ``__ran__[number] = True``; what
was marked is written in coverage.py's own format, and coverage.py does the rest: what counts as a statement,
what is excluded, the report and the gate.
"""

import ast
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

from coverage import CoverageData
from jaxtyping._import_hook import JaxtypingTransformer, Typechecker

BODIES = ("body", "orelse", "finalbody")
DOCUMENTED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Executed:
    """The statements that were compiled with a mark: their lines, and whether they ran."""

    def __init__(self):
        self.ran = []
        self.places = []  # the file and the lines that mark number i stands for

    def compile(self, source, file, typechecker=None):
        """The code of a module's source with marks; a type checker, where given, checks its annotations."""
        tree = compile(source, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        tree.body = self._whole(tree.body, file)
        if typechecker is not None:
            tree = ast.fix_missing_locations(JaxtypingTransformer(typechecker=typechecker).visit(tree))
        return compile(tree, file, "exec", dont_inherit=True)

    def lines(self):
        """The lines that ran, by file."""
        found = {}
        for ran, (file, lines) in zip(self.ran, self.places, strict=True):
            if ran:
                found.setdefault(file, set()).update(lines)
        return found

    def _mark(self, where, file, lines):
        number = len(self.ran)
        self.ran.append(False)
        self.places.append((file, lines))
        line, column = where.lineno, where.col_offset
        at = {"lineno": line, "end_lineno": line, "col_offset": column, "end_col_offset": column}
        name, index = ast.Name("__ran__", ast.Load(), **at), ast.Constant(number, **at)
        return ast.Assign([ast.Subscript(name, index, ast.Store(), **at)], ast.Constant(True, **at), **at)

    def _whole(self, statements, file):
        """The body of a module, or of a class outside of functions: at its end, all of it ran."""
        for statement in statements:
            if isinstance(statement, ast.ClassDef):
                statement.body = self._whole(statement.body, file)
            else:
                self._inside(statement, file)
        lines = [line for statement in statements for line in _lines(statement)]
        return [*statements, self._mark(statements[-1], file, lines)] if statements else []

    def _body(self, statements, file):
        """Statements, each after its mark."""
        marked = []
        for statement in statements:
            marked += [self._mark(statement, file, _lines(statement)), statement]
            self._inside(statement, file)
        return marked

    def _inside(self, statement, file):
        documented = (
            isinstance(statement, DOCUMENTED) and ast.get_docstring(statement, clean=False) is not None
        )
        for name in BODIES:
            if inner := getattr(statement, name, None):
                setattr(statement, name, [*inner[:documented], *self._body(inner[documented:], file)])
        # That an exception or a pattern was tried is not seen; that it fitted is.
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            line = part.lineno if isinstance(part, ast.ExceptHandler) else part.pattern.lineno
            part.body = [self._mark(part.body[0], file, [line]), *self._body(part.body, file)]


def _lines(statement):
    """The lines on which a statement and its decorators begin."""
    return [statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", ()))]


class Loader(SourceFileLoader):
    """Reads a module's source, never what was compiled of it before, and compiles it with marks."""

    def __init__(self, name, path, executed, typechecker):
        super().__init__(name, path)
        self.executed = executed
        self.typechecker = typechecker

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return self.executed.compile(self.get_data(path), path, self.typechecker)

    def exec_module(self, module):
        module.__ran__ = self.executed.ran
        super().exec_module(module)


class Finder:
    """Finds the modules of packages, to be loaded with marks; those ``checked`` have their types checked."""

    def __init__(self, packages, checked=()):
        self.packages = tuple(packages)
        self.checked = tuple(checked)
        self.executed = Executed()
        self.typechecker = Typechecker("beartype.beartype")

    def install(self):
        """Be asked before all other finders."""
        early = [name for name in sys.modules if name.partition(".")[0] in self.packages]
        assert not early, f"read before its lines are counted: {early}"
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            checked = any(f"{fullname}.".startswith(f"{name}.") for name in self.checked)
            typechecker = self.typechecker if checked else None
            spec.loader = Loader(spec.loader.name, spec.loader.path, self.executed, typechecker)
        return spec

    def write(self, root):
        """Write what ran beside what other processes write; files that nobody read count too."""
        data = CoverageData(basename=str(Path(root) / ".coverage"), suffix=True)
        data.add_lines(self.executed.lines())
        for package in self.packages:
            for source in Path(root).glob(f"packages/*/src/{package}"):
                data.touch_files(map(str, source.rglob("*.py")))
        data.write()
