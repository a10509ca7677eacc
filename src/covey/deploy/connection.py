"""A site's connection: Flower's fleet client with a signed request each time, a heartbeat, messages in and out.

The app of a run, which is code, is never fetched: an answer comes from this site's covey only.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Message

from covey.deploy import flower_insides as insides
from covey.deploy.flower.grid import from_record, to_record
from covey.deploy.pieces import Incoming, Kept, bound_replies, fetcher, push
from covey.errors import RunError, UserError, user_error
from covey.files import write_atomically

POLL = 0.5  # seconds between two looks at the mailbox
RETRY = 2.0  # seconds before the next attempt where the server is away
MOST_BYTES = 4 * 2**30  # of one message, where the site says nothing else
CONNECTION_SECONDS = 60.0  # seconds that an answer may pause: what a thin link needs for a piece of a message
TRIES = 3  # attempts of one request before the connection counts as broken
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0  # seconds between two attempts to continue with a message
AWAY = (502, 503, 504)  # what the server's door answers while the SuperLink behind it is not there
FAILED = 500  # what the SuperLink answers where its database was busy for too long
TRIES_OF_FAILED = 8  # attempts before it counts as an answer: one minute in all
NO_ENTRY = (401, 412)  # its key was taken off the list, its certificate expired, or its clock is wrong
USED = "its key is not registered there, or another process uses it now"
REFUSED = {401: "its signature is not accepted; is this machine's clock right?"}


# seconds before a refusal counts: a broken connection of one's own counts as online for a minute
PERSEVERE = 75.0


class TurnedAway(Exception):  # noqa: N818
    """The server does not know this site's key yet, or still takes an earlier connection of it to be alive."""


def serve_site(
    address: str,
    answer: Callable[[bytes], bytes],
    *,
    ca: Path | None,
    key: Any,
    folder: Path,
    say: Callable[[str], None],
    most: int = MOST_BYTES,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Connects, answers message after message until that is enough, and connects again when the server was away."""
    away, refused = False, 0.0
    context = trust(ca) if ca is not None else None
    while True:
        try:
            if context is not None:
                check_certificate(address, context, f"--ca {ca}")
            with connected(address, ca, key, folder / "node") as (client, node):
                say(f"connected to {address}")
                away, refused = False, 0.0
                while True:
                    looked = time.monotonic()
                    if not answer_one(client, node, answer, say, most):  # the server may have held it back
                        time.sleep(max(0.0, looked + POLL - time.monotonic()))
                    if enough():
                        return
        except TurnedAway as error:
            if not refused:
                refused = time.monotonic()
                say(f"{error}; trying again for {PERSEVERE:.0f} s")
            elif time.monotonic() > refused + PERSEVERE:
                raise RunError(str(error)) from error
        except (OSError, httpx.HTTPError) as error:
            if not away:
                status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
                why = f"it answers {status}" if status else str(error)
                if status in NO_ENTRY:
                    say(f"{address} does not take this site's requests any more ({why}); trying again")
                else:
                    say(f"the server at {address} is away, trying again every {RETRY:.0f} s: {why}")
            away = True
        sign_of_life(folder)
        time.sleep(RETRY)


@contextlib.contextmanager
def connected(
    address: str, ca: Path | None, key: Any, note: Path
) -> Iterator[tuple[insides.FleetHttpClient, insides.node_pb2.Node]]:
    """This site's node, online while the context lasts.

    Flower turns away a key whose node still counts as online, which a killed site does for a minute. So the node's
    number is kept in `note`, and a site that comes back signs off the old connection first.
    """
    private, public = (key, key.public_key()) if key is not None else insides.generate_key_pairs()
    signed = [
        insides.RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        insides.NodeAuthHttpInterceptor(private, public),
    ]
    shown = insides.public_key_to_bytes(public)
    with insides.FleetHttpClient.from_server_address(
        address, ca is None, str(ca) if ca else None, signed
    ) as client:
        insides.http_of(client).timeout = httpx.Timeout(CONNECTION_SECONDS, connect=10)
        bound_replies(insides.http_of(client))
        if key is None:
            persistent(client.RegisterNode, insides.fleet_pb2.RegisterNodeFleetRequest(public_key=shown))
        elif note.exists():
            with contextlib.suppress(httpx.HTTPStatusError):
                persistent(
                    client.DeactivateNode,
                    insides.fleet_pb2.DeactivateNodeRequest(node_id=int(note.read_text(encoding="utf-8"))),
                )
        try:
            active = persistent(
                client.ActivateNode,
                insides.fleet_pb2.ActivateNodeRequest(
                    public_key=shown, heartbeat_interval=insides.HEARTBEAT_DEFAULT_INTERVAL
                ),
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code in AWAY:
                raise
            raise TurnedAway(
                f"{address} refuses this site: {REFUSED.get(error.response.status_code, USED)}"
            ) from error
        node = insides.node_pb2.Node(node_id=active.node_id)
        if key is not None:
            with user_error(f"--state {note.parent} cannot be written"):
                write_atomically(note, str(active.node_id))
        heart = insides.HeartbeatSender(lambda: beat(client, node, note.parent))
        heart.start()
        try:
            yield client, node
        finally:
            heart.stop()
            with contextlib.suppress(httpx.HTTPError):
                client.DeactivateNode(insides.fleet_pb2.DeactivateNodeRequest(node_id=node.node_id))
                if key is None:
                    client.UnregisterNode(insides.fleet_pb2.UnregisterNodeFleetRequest(node_id=node.node_id))


def sign_of_life(folder: Path) -> None:
    """Touches a file that `covey health` looks at; where that cannot be done, the site works all the same."""
    with contextlib.suppress(OSError):
        (folder / "alive").touch()


def beat(client: insides.FleetHttpClient, node: insides.node_pb2.Node, folder: Path) -> bool:
    """One heartbeat; the mailbox finds out whether the connection broke."""
    sign_of_life(folder)
    with contextlib.suppress(httpx.HTTPError):
        client.SendNodeHeartbeat(
            insides.heartbeat_pb2.SendNodeHeartbeatRequest(
                node=node, heartbeat_interval=insides.HEARTBEAT_DEFAULT_INTERVAL
            )
        )
    return True


def persistent(
    call: Callable[[Any], Any],
    request: Any,
    *,
    until: float = 0.0,
    say: Callable[[str], None] = lambda _: None,
) -> Any:
    """Repeats a request over a break of the network; refusals come through at once.

    It is tried three times, and after that repeatedly until that time of the monotonic clock.
    """
    tries, pause = 0, FIRST_PAUSE
    while True:
        tries += 1
        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            away = status in AWAY and (tries < TRIES or time.monotonic() < until)
            if not away and not (status == FAILED and tries < TRIES_OF_FAILED):
                raise
        except httpx.TransportError:
            if tries >= TRIES and time.monotonic() > until:
                raise
        if tries == TRIES:
            say(
                "the connection broke in the middle of a message; continuing with it as soon as the server answers"
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE) if tries >= TRIES else pause


def answer_one(
    client: insides.FleetHttpClient,
    node: insides.node_pb2.Node,
    answer: Callable[[bytes], bytes],
    say: Callable[[str], None],
    most: int = MOST_BYTES,
) -> bool:
    """Takes one message of at most `most` bytes out of the mailbox and answers it; says whether there was one."""
    pulled = persistent(client.PullMessages, insides.fleet_pb2.PullMessagesRequest(node=node))
    if not pulled.messages_list:
        return False
    head, tree = insides.message_from_proto(pulled.messages_list[0]).metadata, pulled.message_object_trees[0]
    until = time.monotonic() + head.ttl  # nobody waits for the answer any longer

    def keep(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda request: persistent(call, request, until=until, say=say)

    try:
        message = pulled_message(client, node, head.run_id, tree, most, until=until, keep=keep)
        started = time.perf_counter()
        reply = insides.number_it(Message(to_record(answer(from_record(message.content))), reply_to=message))
        worked = time.perf_counter() - started
        push(client, node, head.run_id, reply, worked, keep=keep, until=until)
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (*AWAY, *NO_ENTRY):
            raise
        say(f"an answer was not taken ({error.response.status_code}): its run may be over")
    except ValueError as error:
        say(f"a message was dropped: {error}")
    except (KeyError, TypeError) as error:
        say(f"a message was dropped: {type(error).__name__}: {error}")
    return True


def once(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda request: persistent(call, request)


def pulled_message(
    client: insides.FleetHttpClient,
    node: insides.node_pb2.Node,
    run: int,
    tree: Any,
    most: int,
    *,
    until: float,
    keep: Kept = once,
) -> Message:
    """The message of that tree, once all of its pieces have come; the server is told that it need not keep it."""
    fetch = fetcher(keep(client.PullObject), node, run)
    try:
        incoming = Incoming(tree, most)
        while not incoming.take(fetch):
            if time.monotonic() > until:
                raise ValueError("not all of it came in time")
            time.sleep(POLL)
    finally:
        request = insides.message_pb2.ConfirmMessageReceivedRequest(
            node=node, run_id=run, message_object_id=tree.object_id
        )
        keep(client.ConfirmMessageReceived)(request)
    return incoming.message()


def trust(ca: Path) -> ssl.SSLContext:
    """TLS that believes the CA and nobody else."""
    with user_error(f"--ca {ca} cannot be read"):
        return ssl.create_default_context(cafile=str(ca))


def check_certificate(address: str, context: ssl.SSLContext, ca: str) -> None:
    """Stops where the server's certificate is not the CA's: no retry can fix that."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as plain:
        try:
            context.wrap_socket(plain, server_hostname=host.strip("[]")).close()
        except ssl.SSLCertVerificationError as error:
            raise UserError(f"the certificate of {address} is not of {ca}: {error.verify_message}") from error
