"""Who may ask: nobody but the browser or program that has this launch's token, from this server's own pages.

    Host                    only the names that we serve: a foreign name that points here (DNS rebinding) is refused
    Origin, Sec-Fetch-Site  what another site's page sends is refused, whatever it asks
    token                   made anew at each launch; it comes once in the address, then a cookie (HttpOnly, Strict)
    CSRF token              in a header of every request that changes something; programs send the token itself instead
    content policy          own scripts and styles from files, nothing inline, no other site, no frames of others

It is plain ASGI around the whole application, so that no route can forget it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wayfare.serve.templating import page
from wayfare.serve.uploads import UploadError, Uploads

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}
_SAFE = ("GET", "HEAD")
_OPEN = ("/static/", "/enter")  # what may be asked for without a token
_TRIES, _WINDOW = 20, 60.0  # wrong tokens or passwords in so many seconds
_MOST_SECRET = 4096


class Keys:
    """The secrets of one launch."""

    def __init__(self, password: str = "", token: str = "") -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.session, self.csrf = self._derived("session"), self._derived("csrf")
        self._password = _stretched(password) if password else b""
        self._wrong: deque[float] = deque()

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()

    @property
    def patience_is_over(self) -> bool:
        """Whether so many wrong secrets came that none is looked at for a while."""
        while self._wrong and self._wrong[0] < time.monotonic() - _WINDOW:
            self._wrong.popleft()
        return len(self._wrong) >= _TRIES

    @property
    def has_password(self) -> bool:
        return bool(self._password)

    def fits(self, secret: str) -> bool:
        """Whether this is the token, or the password. Guesses are counted of passwords only: nobody guesses a token."""
        if _same(secret, self.token):
            return True
        if self.patience_is_over:
            return False
        right = bool(self._password) and hmac.compare_digest(_stretched(secret), self._password)
        if not right:
            self._wrong.append(time.monotonic())
        return right


def _stretched(password: str) -> bytes:
    return hashlib.scrypt(password.encode(), salt=b"wayfare serve", n=2**14, r=8, p=1, maxmem=2**26)


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


class Access:
    """The application behind its checks."""

    def __init__(self, app: ASGIApp, keys: Keys, hosts: frozenset[str], scheme: str = "http") -> None:
        self._app, self._keys, self._hosts = app, keys, hosts
        self._origins = frozenset(f"{scheme}://{host}" for host in hosts)
        self._secure, self._uploads = scheme == "https", Uploads(seconds=10)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = await self._answer(request)
        await (answer or self._app)(scope, receive, with_headers)

    async def _answer(self, request: Request) -> Response | None:
        """What is answered in place of the application; None where it may answer itself."""
        if reason := self._foreign(request):
            return _refused(request, reason, 403)
        path = request.url.path
        if path == "/enter" and request.method == "POST":
            return await self._enter(request)
        if request.method == "GET" and "token" in request.query_params:
            return self._by_address(request)
        if path.startswith(_OPEN):
            return None
        return self._unknown(request)

    def _foreign(self, request: Request) -> str:
        """Why a request is not from our own pages or from a program; "" if it is."""
        headers = request.headers
        if headers.get("host", "").lower() not in self._hosts:
            return "this server does not go by that name"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            return "requests from other sites are refused"
        return "requests from other sites are refused" if _is_cross_site(request.method, headers) else ""

    def _unknown(self, request: Request) -> Response | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if token:
            if scheme.lower() == "bearer" and _same(token.strip(), self._keys.token):
                return None
            return _refused(request, "this is not the token of this launch", 401)
        if not self._has_session(request):
            if request.url.path.startswith("/api/") or request.method not in _SAFE:
                return _refused(request, "no token: send it as Authorization: Bearer TOKEN", 401)
            return page(request, "enter.html", status=401, wrong=False, password=self._keys.has_password)
        if request.method in _SAFE or _same(request.headers.get("x-csrf-token", ""), self._keys.csrf):
            return None
        return _refused(request, "the CSRF token is missing or wrong: load the page again", 403)

    def _has_session(self, request: Request) -> bool:
        try:
            morsel = SimpleCookie(request.headers.get("cookie", "")).get(_cookie_name(request))
        except CookieError:
            return False
        return morsel is not None and _same(morsel.value, self._keys.session)

    # ---- getting in

    async def _enter(self, request: Request) -> Response:
        """The form of the page that asks for the token or the password."""
        try:
            body = await self._uploads.read(request, _MOST_SECRET)
        except UploadError as error:
            return _refused(request, str(error), error.status)
        secret = parse_qs(body.decode("utf-8", "replace")).get("secret", [""])[0].strip()
        return self._welcome(request, "/") if self._keys.fits(secret) else self._wrong(request)

    def _by_address(self, request: Request) -> Response:
        """The address that the server printed: the token leaves it at once."""
        rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
        if not self._keys.fits(request.query_params["token"]):
            return self._wrong(request)
        return self._welcome(request, request.url.path + (f"?{urlencode(rest)}" if rest else ""))

    def _wrong(self, request: Request) -> Response:
        shown = page(request, "enter.html", status=403, wrong=True, password=self._keys.has_password)
        return self._impatient(request) or shown

    def _impatient(self, request: Request) -> Response | None:
        over = self._keys.patience_is_over
        return _refused(request, "too many wrong tokens or passwords: wait a minute", 429) if over else None

    def _welcome(self, request: Request, where: str) -> Response:
        response = RedirectResponse(f"/{where.lstrip('/')}", 303)
        name, value = _cookie_name(request), self._keys.session
        response.set_cookie(name, value, httponly=True, samesite="strict", secure=self._secure, path="/")
        return response


def _is_cross_site(method: str, headers: Headers) -> bool:
    """By what browsers say of a request; opening a link of another site shows our page, and nothing more."""
    site = headers.get("sec-fetch-site", "none")
    kind = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    opened = method in _SAFE and kind == ("navigate", "document")
    return site not in ("same-origin", "none") and not opened


def _cookie_name(request: Request) -> str:
    """Cookies do not tell ports apart, and there may be several servers."""
    return f"wayfare-{request.headers.get('host', '').rpartition(':')[2] or '443'}"


def _refused(request: Request, reason: str, status: int) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": reason, "kind": "AccessError"}, status)
    return PlainTextResponse(reason, status)
