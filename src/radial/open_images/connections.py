"""HTTP connections of one thread, kept open from one request to the next."""

from __future__ import annotations

import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from radial.checks import DataError

_REDIRECTS = (301, 302, 303, 307, 308)
_HOPS = 5
_LEFT = 1 << 16  # bytes of an answer nobody wants that are read to keep its connection


class Connections:
    """One open connection a server; for one thread, except `abort`.

    Redirects are followed, never from https to http. The proxies of the environment
    (``https_proxy``, ``no_proxy`` …) are used, with name and password where they have them.
    """

    def __init__(self, timeout: float = 30.0) -> None:
        self.timeout = timeout
        self.md5: set[str] = set()  # servers whose ETags were the MD5 of what came
        self.aborted = False
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def abort(self) -> None:
        """End what another thread waits for: its request fails at once, and is not repeated."""
        self.aborted = True
        for connection in list(self._open.values()):
            sock = connection.sock
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def answer(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET, whatever its status, its body not yet read."""
        headers = {
            "User-Agent": "radial-ssl",
            "Accept": "*/*",
            "Accept-Encoding": "identity",  # what counts are the bytes of the file
            **(headers or {}),
        }
        for _ in range(_HOPS):
            connection, response = self._ask(url, headers)
            target = response.getheader("Location")
            moved = response.status in _REDIRECTS and target is not None
            try:
                if not moved:
                    yield response
            except Exception:
                _drain(response, connection, keep=response.status >= 400)
                raise
            except BaseException:
                _drain(response, connection, keep=False)
                raise
            _drain(response, connection)
            if not moved:
                return
            url = _redirected(url, target or "")
        raise http.client.HTTPException(f"more than {_HOPS} redirects")

    def _ask(
        self, url: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = split(url)
        proxy = _proxy(parts)
        key = (parts.scheme, parts.netloc)
        if key not in self._open:
            self._open[key] = _connection(parts, proxy, self.timeout)
        connection = self._open[key]
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if proxy is not None and parts.scheme == "http":
            target = f"http://{parts.netloc}{target}"
            headers = {**headers, **_credentials(proxy)}
        kept = connection.sock is not None
        while True:
            try:
                connection.request("GET", target, headers=dict(headers))
                return connection, connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine):
                connection.close()
                if not kept or self.aborted:
                    raise
                kept = False  # the server had closed it meanwhile: once more, on a new one
            except BaseException:
                connection.close()
                raise


def _drain(
    response: http.client.HTTPResponse, connection: http.client.HTTPConnection, keep: bool = True
) -> None:
    """Read what is left of an answer if it is little; else the connection is of no more use."""
    with suppress(OSError, http.client.HTTPException):
        if keep and not response.isclosed() and 0 < (response.length or 0) <= _LEFT:
            response.read()
    whole = response.length == 0 or (response.length is None and response.isclosed())
    if not whole:
        connection.close()
    response.close()


def split(url: str) -> SplitResult:
    """The parts of an address that can be asked for; anything else is a DataError."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        known = False
    if not known or any(ord(letter) <= 32 or ord(letter) >= 127 for letter in url):
        raise DataError(f"not an address of the form https://host/path: {url!r}")
    return parts


def _redirected(url: str, target: str) -> str:
    before = url
    try:
        url = urljoin(url, target)
        split(url)
    except ValueError:  # a DataError, too
        raise http.client.HTTPException(f"redirected to {target!r}, no address") from None
    if before.startswith("https:") and not url.startswith("https:"):
        raise http.client.HTTPException(f"redirected from https to {url}")
    return url


def _proxy(parts: SplitResult) -> SplitResult | None:
    address = getproxies().get(parts.scheme)
    if not address or proxy_bypass(parts.hostname or ""):
        return None
    try:
        return split(address if "://" in address else f"http://{address}")
    except DataError:  # whose text may have a password in it
        raise DataError(f"{parts.scheme}_proxy of the environment is not an address") from None


def _credentials(proxy: SplitResult) -> dict[str, str]:
    """Name and password in the address of a proxy, as it wants to be told."""
    if proxy.username is None:
        return {}
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(words.encode()).decode()}"}


def _connection(
    parts: SplitResult, proxy: SplitResult | None, timeout: float
) -> http.client.HTTPConnection:
    through = proxy or parts
    host = through.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, through.port or 80, timeout=timeout)
    connection = http.client.HTTPSConnection(
        host, through.port or (80 if proxy else 443), timeout=timeout, context=_certificates()
    )
    if proxy is not None:
        connection.set_tunnel(parts.hostname or "", parts.port or 443, _credentials(proxy))
    return connection


@cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()  # reading the certificates takes longer than a request
