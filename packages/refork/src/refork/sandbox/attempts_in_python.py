"""Sources that try to get out of the sandbox by what Python offers; the form is that of ``attempts``."""

LANGUAGE = r"""
## importlib
import importlib
return importlib.import_module("io").open(arena["secret"]).read()
## __import__
return __import__("io").open(arena["secret"]).read()
## sys.modules
import sys
return sys.modules["io"].open(arena["secret"]).read()
## a module's modules
import re
return re.enum.sys.modules["io"].open(arena["secret"]).read()
## a module's import
from json import codecs
return codecs.open(arena["secret"]).read()
## star import
#!from io import *
#!from os import *
return fdopen(open(arena["secret"], 0)).read()
## subclasses
for one in ().__class__.__base__.__subclasses__():
    if one.__name__ == "FileLoader":
        return one("x", "x").get_data(arena["secret"]).decode()
## globals of a proxy
function = apis.x.y
found = function.__globals__["__builtins__"]
return (found["open"] if isinstance(found, dict) else found.open)(arena["secret"]).read()
## globals of a method
import statistics
return statistics.mean.__globals__["sys"].modules["io"].open(arena["secret"]).read()
## frames of an error
try: 1 / 0
except ZeroDivisionError as error: frame = error.__traceback__.tb_frame
while "open" not in frame.f_builtins: frame = frame.f_back
return frame.f_builtins["open"](arena["secret"]).read()
## frames of a generator
def walk():
    frame = g.gi_frame
    while frame.f_back and "open" not in frame.f_builtins: frame = frame.f_back
    yield frame.f_builtins["open"](arena["secret"]).read()
g = walk()
return next(g)
## frames by sys
import sys
frame = sys._getframe()
while "open" not in frame.f_builtins: frame = frame.f_back
return frame.f_builtins["open"](arena["secret"]).read()
## format looks up attributes
import os
return "{0.environ}".format(os)
## formatter's field
import string
found = string.Formatter().get_field("0.__globals__", (apis.x.y,), {})[0]["__builtins__"]
return (found["open"] if isinstance(found, dict) else found.open)(arena["secret"]).read()
## attrgetter
import operator
found = operator.attrgetter("__globals__")(apis.x.y)["__builtins__"]
return (found["open"] if isinstance(found, dict) else found.open)(arena["secret"]).read()
## update_wrapper
import functools
copied = functools.update_wrapper(functools.partial(print), apis.x.y, assigned=["__globals__"], updated=[])
found = copied.__globals__["__builtins__"]
return (found["open"] if isinstance(found, dict) else found.open)(arena["secret"]).read()
## getattr by pieces
import io
return getattr(io, "op" + "en")(arena["secret"]).read()
## eval
return eval("open(arena['secret']).read()")
## exec
found = {"arena": arena}
exec("x = open(arena['secret']).read()", found)
return found["x"]
## compile
return eval(compile("open(arena['secret']).read()", "x", "eval"))
## codec
import codecs
return eval(codecs.decode("bcra", "rot13"))(arena["secret"]).read()
## other letters
return ｏｐｅｎ(arena["secret"]).read()
## other letters in an f-string
return f"{ｏｐｅｎ(arena['secret']).read()}"
## match pattern
match apis.x.y:
    case object(__globals__=found): pass
found = found["__builtins__"]
return (found["open"] if isinstance(found, dict) else found.open)(arena["secret"]).read()
## class body
class A:
    x = open(arena["secret"]).read()
return A.x
## class that is asked for its text
class A(Exception):
    def __str__(self): return open(arena["secret"]).read()
raise A
## meta class
class M(type):
    def __call__(cls): return open(arena["secret"]).read()
class A(metaclass=M): pass
return A()
## decorator
@lambda f: open(arena["secret"]).read()
def f(): pass
return f
## default value
def f(x=open(arena["secret"]).read()): return x
return f()
## async
async def f(): return open(arena["secret"]).read()
try: f().send(None)
except StopIteration as done: return done.value
## builtins of the module
return (__builtins__["open"] if isinstance(__builtins__, dict) else __builtins__.open)(arena["secret"]).read()
## other builtins
#!__builtins__ = {"open": None}
import builtins
return builtins.open(arena["secret"]).read()
## when loaded
#!FOUND = __import__("io").open
return FOUND(arena["secret"]).read()
## other code
def f(path): return path
f.__code__ = (lambda path: open(path).read()).__code__
return f(arena["secret"])
## function from code
import types
return types.FunctionType(compile("open(p).read()", "x", "eval"), {"p": arena["secret"]})()
## pickle
import pickle
return pickle.loads(b"cio\nopen\n(V" + arena["secret"].encode() + b"\ntR.").read()
## marshal
import marshal, types
code = marshal.loads(marshal.dumps(compile("open(p).read()", "x", "eval")))
return eval(code, {"p": arena["secret"]})
## Python by ctypes
import ctypes
ctypes.pythonapi.PyRun_SimpleString(f"open({arena['target']!r}, 'w')".encode())
## type with three arguments
return type("A", (), {"x": property(lambda self: open(arena["secret"]).read())})().x
## patched built-ins
import builtins
builtins.sorted = builtins.sum = lambda *_: 0
return open(arena["secret"]).read()
## patched modules
import sys, json
sys.modules["json"] = sys.modules["re"] = None
json.loads = None
return open(arena["secret"]).read()
## patched proxies
type(apis).__getattr__ = lambda self, name: lambda **k: open(arena["secret"]).read()
return apis.x()
"""

ENDINGS = r"""
## leaves [fails]
raise SystemExit(0)
## interrupts [fails]
raise KeyboardInterrupt
## base error [fails]
raise BaseException("x")
## exits at once [fails]
import os
os._exit(0)
## aborts [fails]
import os
os.abort()
## crashes [fails]
import ctypes
ctypes.string_at(0)
## at exit [later]
import atexit, sys
atexit.register(lambda: open(arena["target"], "w"))
sys.exit()
## timer [later]
import threading
threading.Timer(0.2, lambda: open(arena["target"], "w")).start()
## when deleted [later]
class A:
    def __del__(self): open(arena["target"], "w")
x = A()
del x
"""
