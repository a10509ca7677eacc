"""What a site takes of a server's replies: no detour to another address, nothing packed, and a bounded size.

Flower's client follows every redirection, with the request's body and over whatever protocol the server names, and
reads a reply of any length; a malicious server could so send a site's answers elsewhere, or fill its memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx

MOST_REPLY = 64 * 2**20  # bytes; messages come in pieces of 1 MB


def bound_replies(client: httpx.Client, most: int = MOST_REPLY) -> None:
    """Makes a client take plain replies of that many bytes at most, from the address that it asked."""
    client.follow_redirects = False
    client.headers["accept-encoding"] = "identity"
    client._transport = BoundedReplies(client._transport, most)
    client._mounts = {
        pattern: None if transport is None else BoundedReplies(transport, most)
        for pattern, transport in client._mounts.items()
    }


class BoundedReplies(httpx.BaseTransport):  # type: ignore[misc]
    """A transport that refuses what no honest server sends; as a `RequestError`, which is not tried again at once."""

    def __init__(self, inner: httpx.BaseTransport, most: int) -> None:
        self.inner = inner
        self.most = most

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self.inner.handle_request(request)
        why = ""
        if response.is_redirect:
            why = f"it sends this site elsewhere ({response.status_code}), which no site follows"
        elif response.headers.get("content-encoding", "identity") != "identity":
            why = "its reply is packed, which nobody asked for"
        if why:
            response.close()
            raise httpx.RequestError(why, request=request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = Bounded(response.stream, self.most, request)
        return response

    def close(self) -> None:
        self.inner.close()


class Bounded(httpx.SyncByteStream):  # type: ignore[misc]
    """The bytes of a reply, up to a bound."""

    def __init__(self, inner: httpx.SyncByteStream, most: int, request: httpx.Request) -> None:
        self.inner = inner
        self.most = most
        self.request = request

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self.inner:
            size += len(piece)
            if size > self.most:
                raise httpx.RequestError(f"its reply is larger than {self.most} bytes", request=self.request)
            yield piece

    def close(self) -> None:
        self.inner.close()
