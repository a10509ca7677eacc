"""The page and what it asks for: runs, their changes as server-sent events, one run in progress, reports."""

import asyncio
import base64
import contextlib
import hmac
import html
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from covey.errors import UserError
from covey.files import strict_json
from covey.folder.read import read_run
from covey.report.live.folder import RunsFolder, WatchedRun
from covey.report.live.table import live_table, row_of
from covey.report.page import STYLE, page, part_of_page

EVERY = 1.0  # seconds between two looks
AT_ONCE = 0.5  # seconds of reading before the page is told what there is so far
HOSTS = ("127.0.0.1", "localhost", "[::1]")
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
MOST_COMPARED = 30
MOST_WAITING = 8  # messages that a listener has not taken

ExtraPages = Mapping[str, tuple[str, Callable[[], str]]]  # path -> type, content


def part(name: str) -> str:
    """A file of this package; the style is that of the report, and some lines of its own."""
    own = files("covey.report.live").joinpath(name).read_text(encoding="utf-8")
    return part_of_page(STYLE) + own if name.endswith(".css") else own


class Live:
    """The folder, looked at by one task, and everybody who listens."""

    def __init__(self, root: Path) -> None:
        self.folder = RunsFolder(root)
        self.table: dict[str, Any] = {"settings": [], "metrics": [], "about": {}, "runs": []}
        self.listening: set[asyncio.Queue[str]] = set()
        self.reports: dict[tuple[str, ...], tuple[Any, str]] = {}

    async def look(self) -> None:
        """Looks repeatedly, and tells what changed."""
        while True:
            with contextlib.suppress(OSError):
                changed, gone = await asyncio.to_thread(self.folder.refresh, AT_ONCE)
                if changed or gone:
                    self._tell(changed, gone)
            await asyncio.sleep(0.01 if self.folder.more else EVERY)

    def _tell(self, changed: list[WatchedRun], gone: list[str]) -> None:
        before = (self.table["settings"], self.table["metrics"])
        self.table = live_table(self.folder.runs.values())
        settings, metrics = self.table["settings"], self.table["metrics"]
        if (settings, metrics) != before or gone:
            message: dict[str, Any] = {"all": self.table}
        else:
            message = {"runs": [row_of(run, settings, metrics) for run in changed]}
        text = strict_json(message)
        for queue in self.listening:
            if queue.full():  # a listener that falls behind gets the whole table later, and holds up nobody
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(strict_json({"all": self.table}))
            else:
                queue.put_nowait(text)

    def events(self, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """The whole table and then every change, as server-sent events, until the listener is gone."""
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=MOST_WAITING)
        self.listening.add(queue)

        async def stream() -> AsyncIterator[str]:
            try:
                yield f"data: {strict_json({'all': self.table})}\n\n"
                while not await gone():
                    try:
                        yield f"data: {await asyncio.wait_for(queue.get(), 15)}\n\n"
                    except TimeoutError:
                        yield ": still here\n\n"
            finally:
                self.listening.discard(queue)

        return stream()

    def run(self, name: str) -> WatchedRun | None:
        return self.folder.runs.get(name)

    def report(self, names: tuple[str, ...]) -> str:
        """The page of some runs, made anew when one of them has changed."""
        runs = [run for name in names if (run := self.run(name)) is not None]
        if not runs or len(runs) != len(names):
            raise UserError("there is no such run in this folder")
        stamp = [run.stamp for run in runs]
        known = self.reports.get(names)
        if known is None or known[0] != stamp:
            known = (stamp, page([read_run(run.folder) for run in runs]))
            self.reports[names] = known
            for oldest in list(self.reports)[:-8]:
                del self.reports[oldest]
        return known[1]


def make_app(
    root: Path,
    *,
    key: str = "",
    extra: ExtraPages | None = None,
    hosts: tuple[str, ...] = HOSTS,
    first: Callable[[], str] = str,
) -> Any:
    """The application; with a `key`, a browser is asked for it (any name, the key as the password).

    `first` is markup that stands in the page from the beginning, `extra` are further addresses.
    """
    live = Live(root)

    @contextlib.asynccontextmanager
    async def looking(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(live.look())
        yield
        task.cancel()

    def start(_: Request) -> Response:
        return HTMLResponse(part("page.html").replace("<!--sites-->", first()))

    def given(kind: str, content: Callable[[], str]) -> Callable[[Request], Response]:
        return lambda _: Response(content(), media_type=kind)

    fixed: dict[str, tuple[str, Callable[[], str]]] = {
        "/draw.js": (KINDS["js"], partial(part_of_page, "draw.js")),
        "/live.js": (KINDS["js"], partial(part, "live.js")),
        "/live.css": (KINDS["css"], partial(part, "live.css")),
    }
    routes = [
        Route("/", start),
        *(Route(path, endpoint) for path, endpoint in endpoints(live).items()),
        *(Route(path, given(*content)) for path, content in {**fixed, **(extra or {})}.items()),
    ]
    return Guarded(Starlette(routes=routes, lifespan=looking), key=key, hosts=hosts)


def endpoints(live: Live) -> dict[str, Any]:
    """What the page asks for while it is open, by its address."""

    def as_json(value: Any, status: int = 200) -> Response:
        return Response(strict_json(value), status_code=status, media_type="application/json")

    def all_runs(_: Request) -> Response:
        return as_json(live.table)

    def one_run(request: Request) -> Response:
        run = live.run(request.query_params.get("id", ""))
        if run is None:
            return as_json({"error": "there is no such run"}, 404)
        detail = dict(run.following.detail()) if run.following else {}
        return as_json({**run.row(), **detail, "status": run.sites})

    async def events(request: Request) -> Response:
        stream = live.events(request.is_disconnected)
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def report(request: Request) -> Response:
        names = tuple(request.query_params.getlist("run"))[:MOST_COMPARED]
        try:
            return HTMLResponse(await asyncio.to_thread(live.report, names))
        except UserError as error:
            said = f"<!doctype html><title>Covey</title><p>{html.escape(str(error))}"
            return HTMLResponse(said, status_code=404)

    return {"/api/runs": all_runs, "/api/run": one_run, "/api/events": events, "/report": report}


class Guarded:
    """In front of the application: who may ask, and what a browser may do with the answer."""

    def __init__(self, app: Any, *, key: str, hosts: tuple[str, ...]) -> None:
        self.app, self.key, self.hosts = app, key, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # A page of somebody else's in the administrator's browser reaches loopback under another name.
        host = headers.get("host", "")
        named = host.rpartition(":")[0] if not host.endswith("]") else host
        if self.hosts and (named or host) not in self.hosts:
            await Response(status_code=404)(scope, receive, send)
        elif self.key and not self._may(headers.get("authorization", "")):
            asked = {"www-authenticate": 'Basic realm="covey"'}
            await Response(status_code=401, headers=asked)(scope, receive, send)
        else:
            await self.app(scope, receive, _with_policy(send, scope["path"]))

    def _may(self, said: str) -> bool:
        try:
            _, _, password = base64.b64decode(said.removeprefix("Basic ")).decode().partition(":")
        except ValueError:
            return False
        return hmac.compare_digest(password.encode(), self.key.encode())


def _with_policy(send: Any, path: str) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
            if path != "/report":  # which says its own, for scripts inside the page
                own.append((b"content-security-policy", POLICY.encode()))
            message = {**message, "headers": [*message["headers"], *own]}
        await send(message)

    return sending
