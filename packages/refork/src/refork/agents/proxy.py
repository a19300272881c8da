"""A proxy for a program that names its models' hosts itself: their TLS ends here, all else passes untouched.

The program alone is told of it, of a password for it, and of an authority that is made for it and that nobody
else believes. The authority's key is in this process alone, and gone with it.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import os
import re
import secrets
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from refork.errors import BadInput, MissingExtra
from refork.serve.local import LONGEST_HEAD, Bounded, listening

#: Variables by which programs find a proxy, and whom they believe: all certificates, or more than their own.
_PROXY: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_TRUST: Final = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS", "DENO_CERT",
)  # fmt: skip
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
#: Seconds that the head of a request, a connection to elsewhere, and what was broken off may take; bytes that
#: are passed at once.
_HEAD_S: Final = 60.0
_CONNECT_S: Final = 60.0
_END_S: Final = 5.0
_PIECE: Final = 1 << 16
#: Days for which a certificate is good: no run takes longer.
_DAYS: Final = 30
Application = Callable[[Any, Any, Any], Awaitable[None]]


def hosts_of(upstreams: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Hosts whose requests are recorded, and where these go: of providers, and ``NAME`` or ``NAME=ADDRESS``.

    Raises:
        BadInput: what is no name of a host.
    """
    found = {}
    for address in upstreams:
        if address.startswith("https://"):
            found[urlsplit(address).hostname or ""] = ""
    for told in names:
        name, _, address = told.partition("=")
        name = name.lower()
        if not _HOST.fullmatch(name) or (address and not address.startswith(("http://", "https://"))):
            raise BadInput(
                f"{told!r} is no name of a host",
                where="--proxy-host",
                hint="for example api.mistral.ai, or api.mistral.ai=https://gateway.example.com",
            )
        found[name] = address.rstrip("/")
    return found


@final
class SessionAuthority:
    """Certificates for hosts, made here and believed by whoever is given ``certificate``.

    Raises:
        MissingExtra: cryptography is not installed (extra ``proxy``).
    """

    def __init__(self) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as error:
            raise MissingExtra("cryptography", "proxy") from error
        self._x509, self._ec = x509, ec
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._own = self._made("Refork, for one run", self._key, None)
        self.certificate = _pem(self._own)
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, host: str) -> ssl.SSLContext:
        """How to be a host."""
        found = self._contexts.get(host)
        if found is None:
            key = self._ec.generate_private_key(self._ec.SECP256R1())
            found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # HTTP/1.1 alone, which every client speaks and our server does.
            found.set_alpn_protocols(["http/1.1"])
            _load(found, _pem(self._made(host, key, host)) + self.certificate, _secret_pem(key))
            self._contexts[host] = found
        return found

    def _made(self, name: str, key: Any, host: str | None) -> Any:
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        x509, now = self._x509, datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        by = subject if host is None else self._own.subject
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(by)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # Clocks of machines differ.
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(host is None, 0 if host is None else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(_usage(x509, signs=host is None), critical=True)
        )
        if host is not None:
            named = _address_of(host)
            one = x509.DNSName(host) if named is None else x509.IPAddress(named)
            made = made.add_extension(x509.SubjectAlternativeName([one]), critical=False)
            use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            made = made.add_extension(use, critical=False)
        return made.sign(self._key, hashes.SHA256())


def _usage(x509: Any, *, signs: bool) -> Any:
    others = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **others)


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(certificate.public_bytes(Encoding.PEM))


def _secret_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Load a chain and its key. Python takes files alone: the key comes through a pipe, and is on no disk."""
    reads, writes = os.pipe()
    try:
        os.write(writes, key)
    finally:
        os.close(writes)
    try:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(chain)
            file.flush()
            context.load_cert_chain(file.name, f"/dev/fd/{reads}")
    finally:
        os.close(reads)


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@final
class LocalProxy:
    """Listens on this machine for one program; use as a context.

    ``hosts``: whose requests are answered here. ``outside``: others are passed on, else refused. ``given``:
    the environment, which may name a proxy through which this machine reaches others. ``passed``: hosts that
    were passed on; ``distrusted``: those whose certificate of ours the program did not take.

    Raises:
        CannotDo: no address can be had, as a context.
        MissingExtra: cryptography is not installed.
    """

    def __init__(self, hosts: Mapping[str, str], given: Mapping[str, str], *, outside: bool = True) -> None:
        self._hosts, self._given, self._outside = frozenset(hosts), given, outside
        self._authority = SessionAuthority()
        self._password = secrets.token_urlsafe(16)
        self.port = 0
        #: The endpoint's own port: a program that has this proxy's alone reaches both by it.
        self.endpoint = 0
        self.passed: set[str] = set()
        self.distrusted: set[str] = set()
        self._kept = ExitStack()
        self._server: asyncio.Server | None = None
        self._application: Callable[[str], Application]
        self._running: set[asyncio.Task[None]] = set()
        self._servers: dict[str, Any] = {}

    def __enter__(self) -> LocalProxy:
        self._socket = self._kept.enter_context(listening("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._folder = self._kept.enter_context(tempfile.TemporaryDirectory(prefix="refork-proxy-"))
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def variables(self) -> dict[str, str]:
        """What the program is told: where the proxy is, its password, and whom to believe."""
        address = f"http://refork:{self._password}@127.0.0.1:{self.port}"
        trusted = Path(self._folder, "certificates.pem")
        trusted.write_bytes(b"\n".join([*_trusted(self._given), self._authority.certificate]))
        # Node looks for a proxy since 22.21 and 24.5, and where it is told to.
        found = dict.fromkeys(_PROXY, address) | {"NODE_USE_ENV_PROXY": "1"}
        # All of the machine's own exceptions are made here, by us.
        found |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1")
        return found | dict.fromkeys(_TRUST, str(trusted))

    # -- in the loop of the endpoint's server ---------------------------------------------------------

    async def begin(self, application: Callable[[str], Application]) -> None:
        """Listen. ``application`` answers the requests to a host, by its name."""
        self._application = application
        self._server = await asyncio.start_server(self._connected, sock=self._socket, limit=LONGEST_HEAD)

    async def end(self) -> None:
        """Listen no more, and break off what runs."""
        if self._server is not None:
            self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        # What was broken off is put on the tape all the same.
        answering = {task for _, state in self._servers.values() for task in state.tasks}
        if answering:
            await asyncio.wait(answering, timeout=_END_S)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError, ValueError):
                await self._asked(reader, writer)
        finally:
            self._running.discard(task)
            writer.close()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
        line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, version = line.split(" ")
        if target.startswith("/"):
            # No proxy is asked, but the endpoint, whose path is its secret.
            await _joined(reader, writer, await asyncio.open_connection("127.0.0.1", self.endpoint), head)
            return
        fields = [one.partition(":") for one in rest]
        if not self._may(next((word for name, _, word in fields if _is(name, "authorization")), "")):
            told = 'Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="refork"'
            await _say(writer, 407, told)
            return
        tunnel = method == "CONNECT"
        where = urlsplit(f"//{target}" if tunnel else target)
        host, port = (where.hostname or "").lower().rstrip("."), where.port or (443 if tunnel else 80)
        if tunnel and host in self._hosts:
            await self._ended(host, port, reader, writer)
            return
        if not self._outside:
            await _say(writer, 403, "Forbidden\r\nX-Refork: contained, it reaches its models alone")
            return
        self.passed.add(host)
        try:
            there = await asyncio.wait_for(self._reached(host, port, tunnel), _CONNECT_S)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            await _say(writer, 502, f"Bad Gateway\r\nX-Refork: {_plain(str(error))}")
            return
        first = b""
        if tunnel:
            await _say(writer, 200, "Connection established")
        else:
            # One request a connection: the next one may be to another host.
            kept = [":".join((name, word)) for name, _, word in fields if not _is(name, "")]
            path = (where.path or "/") + (f"?{where.query}" if where.query else "")
            whole = [f"{method} {path} {version}", *kept, "Connection: close", "", ""]
            first = "\r\n".join(whole).encode("latin-1")
        await _joined(reader, writer, there, first)

    def _may(self, told: str) -> bool:
        wanted = base64.b64encode(f"refork:{self._password}".encode()).decode()
        kind, _, word = told.strip().partition(" ")
        return kind.lower() == "basic" and secrets.compare_digest(word.strip().encode(), wanted.encode())

    async def _ended(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Be a host: end its TLS here, and answer its requests as the endpoint does."""
        await _say(writer, 200, "Connection established")
        ours, theirs = socket.socketpair()
        name = host if port == 443 else f"{host}:{port}"
        loop = asyncio.get_running_loop()
        passing = loop.create_task(_joined(reader, writer, await asyncio.open_connection(sock=theirs), b""))
        self._running.add(passing)
        try:
            context = self._authority.context(host)
            await loop.connect_accepted_socket(lambda: self._protocol(name), ours, ssl=context)
        except (ssl.SSLError, ConnectionError):
            ours.close()
            self.distrusted.add(host)
        await passing
        self._running.discard(passing)

    def _protocol(self, name: str) -> Bounded:
        """The HTTP protocol of the endpoint's server, for one connection."""
        import uvicorn
        from uvicorn.server import ServerState

        if name not in self._servers:
            config = uvicorn.Config(
                self._application(name), log_level="critical", server_header=False, lifespan="off", ws="none"
            )
            config.load()
            self._servers[name] = config, ServerState()
        config, state = self._servers[name]
        return Bounded(_HEAD_S, config=config, server_state=state, app_state={})

    async def _reached(
        self, host: str, port: int, tunnel: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a host, through the proxy that this machine has for it, if any.

        Raises:
            OSError: it cannot be reached.
            ValueError: its proxy is none that we can ask.
        """
        proxies = _proxies(self._given)
        proxy = proxies.get("https" if tunnel else "http") or proxies.get("all")
        if not proxy or proxy_bypass_environment(f"{host}:{port}", proxies):
            return await asyncio.open_connection(host, port)
        where = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if where.scheme != "http":
            raise ValueError(
                f"this machine's own proxy is asked over {where.scheme}, which cannot be passed on"
            )
        reader, writer = await asyncio.open_connection(where.hostname, where.port or 80)
        told = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
        if where.username is not None:
            pair = f"{unquote(where.username)}:{unquote(where.password or '')}"
            told.append(f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
        writer.write("\r\n".join([*told, "", ""]).encode("latin-1"))
        said = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode("latin-1")
        if not re.match(r"HTTP/1\.[01] 2", said):
            writer.close()
            raise ConnectionError(f"this machine's own proxy said {said}")
        return reader, writer


def _proxies(given: Mapping[str, str]) -> dict[str, str]:
    """The proxies that an environment names, by scheme; of ``no`` the hosts that are asked without."""
    found = {name.lower()[:-6]: value for name, value in given.items() if name.lower().endswith("_proxy")}
    return {name: value for name, value in found.items() if value}


def _trusted(given: Mapping[str, str]) -> list[bytes]:
    """The certificates that programs of this machine believe, each file once."""
    named = [given[name] for name in _TRUST if given.get(name)]
    paths = ssl.get_default_verify_paths()
    named += [one for one in (paths.cafile, "/etc/ssl/certs/ca-certificates.crt") if one]
    with suppress(ImportError):
        import certifi

        named.append(certifi.where())
    files = {Path(name).resolve() for name in named if Path(name).is_file()}
    return [file.read_bytes() for file in sorted(files)]


def _is(name: str, what: str) -> bool:
    """Whether a field of a request is the proxy's own: of this kind, or of any."""
    name = name.strip().lower()
    return name == f"proxy-{what}" if what else name.startswith("proxy-") or name == "connection"


def _plain(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", " ", text)[:300]


async def _say(writer: asyncio.StreamWriter, status: int, told: str) -> None:
    """Answer with a status; ``told``: its words, and lines of headers behind them."""
    end = "" if status == 200 else "\r\nContent-Length: 0\r\nConnection: close"
    writer.write(f"HTTP/1.1 {status} {told}{end}\r\n\r\n".encode("latin-1"))
    await writer.drain()


async def _joined(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    first: bytes,
) -> None:
    """Pass bytes on in both directions, as they are, until both have ended."""
    away, to = there
    to.write(first)
    try:
        await asyncio.gather(_copied(reader, to), _copied(away, writer))
    finally:
        to.close()
        writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
