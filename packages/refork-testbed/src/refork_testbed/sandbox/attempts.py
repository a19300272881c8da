"""Sources that try to get out of the sandbox by what Python and the system offer, in groups.

Each is the body of ``attempt(apis, tools, *, arena)``, where ``arena`` names what must stay out of reach: see
:class:`refork_testbed.sandbox.arena.Arena`. A head ``## name`` may carry ``fails`` (an answer is an
escape) and ``later`` (the effect comes after the return). Lines with ``#!`` stand before the function. None
harms the machine where it gets through.
"""

# What Python offers.

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

# What the system offers.

FILES = r"""
## open read
return open(arena["secret"]).read()
## open write
open(arena["target"], "w").write("x")
## os.open
import os
return os.read(os.open(arena["secret"], os.O_RDONLY), 99).decode()
## pathlib
from pathlib import Path
return Path(arena["secret"]).read_text()
## io.open_code
import io
return io.open_code(arena["secret"]).read().decode()
## io.FileIO
import io
return io.FileIO(arena["secret"]).readall().decode()
## codecs.open
import codecs
return codecs.open(arena["secret"], "r").read()
## linecache
import linecache
return linecache.getlines(arena["secret"])
## tokenize.open
import tokenize
return tokenize.open(arena["secret"]).read()
## loader reads a file
from importlib.machinery import SourceFileLoader
return SourceFileLoader("x", arena["secret"]).get_data(arena["secret"]).decode()
## symlink
import os
os.symlink(arena["secret"], arena["target"])
## hard link
import os
os.link(arena["secret"], arena["target"])
## make a folder
import os
os.mkdir(arena["target"])
## make a fifo
import os
os.mkfifo(arena["target"])
## rename
import os
os.rename(arena["secret"], arena["target"])
## delete
import os
os.unlink(arena["secret"])
## truncate
import os
os.truncate(arena["secret"], 0)
## change mode
import os
os.chmod(arena["secret"], 0o777)
## change times
import os
os.utime(arena["secret"], (0, 0))
## list a folder
import os
return os.listdir(arena["folder"])
## change folder
import os
os.chdir(arena["folder"])
return open("secret.txt").read()
## through /proc/self/root
return open("/proc/self/root" + arena["secret"]).read()
## map a file
import mmap, os
return mmap.mmap(os.open(arena["secret"], os.O_RDONLY), 0, prot=mmap.PROT_READ)[:].decode()
## temporary file
import tempfile
tempfile.mkstemp(dir=arena["folder"])
## copy a file
import shutil
shutil.copy(arena["secret"], arena["target"])
## sqlite file
import sqlite3
sqlite3.connect(arena["target"]).execute("create table t(x)")
## log file
import logging
logging.FileHandler(arena["target"])
## libc open
import ctypes
libc = ctypes.CDLL(None)
text = ctypes.create_string_buffer(99)
libc.read(libc.open(arena["secret"].encode(), 0), text, 99)
return text.value.decode()
## libc creat
import ctypes
ctypes.CDLL(None).creat(arena["target"].encode(), 0o644)
"""

NETWORK = r"""
## tcp
import socket
socket.create_connection(("127.0.0.1", arena["tcp"]), 1).send(b"x")
## udp
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", arena["udp"]))
## unix socket
import socket
socket.socket(socket.AF_UNIX).connect(arena["unix"])
## urllib
import urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{arena['tcp']}/", timeout=0.2)
## http client
import http.client
http.client.HTTPConnection("127.0.0.1", arena["tcp"], timeout=0.2).request("GET", "/")
## name look-up [fails]
import socket
return str(socket.getaddrinfo("localhost", 80))
## asyncio [fails]
import asyncio
asyncio.run(asyncio.open_connection("127.0.0.1", arena["tcp"]))
## libc socket [fails]
import ctypes
if ctypes.CDLL(None).socket(2, 1, 0) < 0: raise OSError
## listen [fails]
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
## socket pair [fails]
import socket
socket.socketpair()
"""

PROCESSES = r"""
## fork [later]
import os, time
if not os.fork():
    time.sleep(0.3)
    open(arena["target"], "w")
## fork bomb [later]
import os, time
for _ in range(5): os.fork()
os.setsid() if os.getpid() != os.getpgrp() else None
time.sleep(0.3)
open(arena["target"], "w")
## daemon [later]
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(0.3)
        open(arena["target"], "w")
    os._exit(0)
## subprocess
import subprocess
subprocess.run(["/bin/sh", "-c", 'echo x > "$0"', arena["target"]])
## os.system
import os
os.system(f"echo x > '{arena['target']}'")
## os.popen
import os
return os.popen(f"cat '{arena['secret']}'").read()
## exec [fails]
import os
os.execv("/bin/sh", ["sh", "-c", 'echo x > "$0"', arena["target"]])
## posix_spawn
import os
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", 'echo x > "$0"', arena["target"]], {}), 0)
## multiprocessing
import multiprocessing
process = multiprocessing.get_context("fork").Process(target=open, args=(arena["target"], "w"))
process.start(); process.join()
## pseudo terminal
import os, pty
if not pty.fork()[0]:
    open(arena["target"], "w"); os._exit(0)
os.wait()
## libc system
import ctypes
ctypes.CDLL(None).system(f"echo x > '{arena['target']}'".encode())
## libc fork [later]
import ctypes, time
if not ctypes.CDLL(None).fork():
    time.sleep(0.3)
    open(arena["target"], "w")
## thread bomb [fails]
import threading, time
for _ in range(40): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
## raw thread [fails]
import _thread
_thread.start_new_thread(print, ())
## name spaces [fails]
import ctypes
if ctypes.CDLL(None).unshare(0x10000000): raise OSError
## change root [fails]
import os
os.chroot(arena["folder"])
"""

SIGNALS = r"""
## kill another process
import os
os.kill(arena["victim"], 9)
## kill the parent
import os
os.kill(os.getppid(), 9)
## stop the parent's group
import os
os.killpg(os.getpgid(os.getppid()), 9)
## libc kill
import ctypes
ctypes.CDLL(None).kill(arena["victim"], 9)
## process descriptor
import os, signal
signal.pidfd_send_signal(os.pidfd_open(arena["victim"]), 9)
## ptrace [fails]
import ctypes
if ctypes.CDLL(None).ptrace(16, arena["victim"], None, None): raise OSError
## another's environment
return open(f"/proc/{arena['victim']}/environ").read()
## another's memory [fails]
open(f"/proc/{arena['victim']}/mem", "rb").close()
## another's priority [fails]
import os
os.setpriority(os.PRIO_PROCESS, arena["victim"], 19)
## another's limits [fails]
import resource
resource.prlimit(arena["victim"], resource.RLIMIT_NOFILE, (9, 9))
## alarm after the return [later]
import signal
signal.signal(signal.SIGALRM, lambda *_: open(arena["target"], "w"))
signal.setitimer(signal.ITIMER_REAL, 0.2)
"""

ENVIRONMENT = r"""
## os.environ
import os
return dict(os.environ)
## /proc/self/environ
return open("/proc/self/environ").read()
## parent's environment
import os
return open(f"/proc/{os.getppid()}/environ").read() + open(f"/proc/{arena['victim']}/environ").read()
## libc getenv
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
return str(getenv(arena["variable"].encode()))
## garbage collector
import gc
return [str(one)[:500] for one in gc.get_objects() if isinstance(one, dict) and arena["variable"] in one]
## own command line
return open("/proc/self/cmdline").read() + open(f"/proc/{arena['victim']}/cmdline").read()
"""

DESCRIPTORS = r"""
## inherited descriptors
import os
found = []
for fd in range(1024):
    try: found.append(os.pread(fd, 99, 0).decode())
    except (OSError, ValueError): pass
return found
## descriptors by /proc [fails]
import os
return os.listdir("/proc/self/fd")
## forged refusal
import json, os, struct
data = json.dumps({"error": arena["forged"], "kind": "refused"}).encode()
os.write(4, struct.pack(">I", len(data)) + data)
## forged length [fails]
import os
os.write(4, b"\xff\xff\xff\xff"); os.write(4, b"x" * 60000)
## forged nesting [fails]
import os, struct
os.write(4, struct.pack(">I", 400000))
for _ in range(100): os.write(4, b"[" * 4000)
## forged call [fails]
import json, os, struct
data = json.dumps({"call": ["x"], "arguments": 7}).encode()
os.write(4, struct.pack(">I", len(data)) + data)
while True: pass
## forged list [fails]
import os
os.write(4, b"\x00\x00\x00\x02[]")
while True: pass
## answers to itself
import os
read = os.read
os.read = lambda fd, n: b"\x00\x00\x00\x02{}" if n == 4 else read(fd, n)
return apis.app.function(x=1)
## closed pipe [fails]
import os
os.close(4); os._exit(0)
## new descriptor in memory [fails]
import os
os.memfd_create("x")
## new pipe [fails]
import os
os.pipe()
## flood of calls [fails]
while True: apis.app.function()
## huge call [fails]
apis.app.function(x="x" * (8 << 20))
## huge result [fails]
return "x" * (8 << 20)
## endless print [fails]
while True: print("x" * 1000000)
## endless standard output [fails]
import os
while True:
    try: os.write(1, b"x" * 1000000)
    except OSError: pass
## deep result [fails]
x = []
for _ in range(100000): x = [x]
return x
## not a number [fails]
return float("nan")
## result of code [fails]
return attempt
"""

RESOURCES = r"""
## memory in one piece [fails]
x = bytes(1 << 30)
return len(x)
## memory in many pieces [fails]
x = []
while len(x) < 1100: x.append("x" * (1 << 20))
return len(x)
## memory by text [fails]
x = "x"
for _ in range(30): x += x
return len(x)
## memory by map [fails]
import mmap
x = [mmap.mmap(-1, 1 << 26) for _ in range(16)]
return len(x)
## memory after raised limits [fails]
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 40))
return len(bytes(1 << 30))
## loop [fails]
while True: pass
## loop that catches all [fails]
while True:
    try:
        while True: pass
    except: pass
## loop inside C [fails]
import itertools
return sum(itertools.repeat(1))
## huge power [fails]
return 9 ** 9 ** 9 % 7
## regular expression [fails]
import re
return str(re.match("(a+)+$", "a" * 60 + "b"))
## sleep [fails]
import time
time.sleep(1000)
## signals ignored [fails]
import signal
for one in range(1, 64):
    try: signal.signal(one, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
## recursion [fails]
return attempt(apis, tools, arena=arena)
## recursion without limit [fails]
import sys
sys.setrecursionlimit(10 ** 9)
def f(x): return sorted([x], key=f)
return f(1)
## memory that is executed [fails]
import mmap
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
## memory made executable [fails]
import ctypes, mmap
kept = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
place = ctypes.c_char.from_buffer(kept)
if ctypes.CDLL(None).mprotect(ctypes.c_void_p(ctypes.addressof(place)), 4096, 7): raise OSError
## shared memory
from multiprocessing import shared_memory
shared_memory.SharedMemory(arena["shared"], create=True, size=9)
## System V memory [fails]
import ctypes
found = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
if found < 0: raise OSError
ctypes.CDLL(None).shmctl(found, 0, None)
"""

GROUPS = {
    "files": FILES, "network": NETWORK, "processes": PROCESSES, "signals": SIGNALS,
    "environment": ENVIRONMENT, "descriptors": DESCRIPTORS, "resources": RESOURCES, "language": LANGUAGE,
    "endings": ENDINGS,
}  # fmt: skip
