"""Flower at the server: a mailbox on a Grid, and a run at the SuperLink driven from this process."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx
from flwr.app import ConfigRecord, Message

from covey.deploy import flower_insides as insides
from covey.deploy.flower.grid import response_of, to_record
from covey.deploy.mailboxes import Mailboxes
from covey.deploy.pieces import Incoming, TooLarge, fetcher
from covey.deploy.superlink import Link
from covey.deploy.transport import Response
from covey.errors import RunError

ERRORS = {
    insides.ErrorCode.NODE_UNAVAILABLE: "it is not connected any more",
    insides.ErrorCode.MESSAGE_UNAVAILABLE: "it did not answer in time",
    insides.ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "its answer came too late",
}

TOGETHER = 16  # messages that are announced in one request
SUPERLINK_SECONDS = 300.0  # that a request to it is tried while its process is there: a machine may be busy
# Seconds that its reply may take on a busy machine: answers are given out once, and would be lost with the reply.
REPLY_SECONDS = 300.0
STOPPED = "the SuperLink has stopped the run; resume with covey serve --resume"

# The run has to have an app; sites that joined with covey never fetch it.
APP = {
    "pyproject.toml": b"""[project]
name = "covey-run"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "covey"
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
""",
    "app.py": b"# The server and the sites run their installed covey.\n",
}


class SuperLinkTransport:
    """A `Transport` on the SuperLink; `before_looking` is called before each look at what has come.

    `mailboxes` are those of the open port in this process, if there is one.
    """

    def __init__(
        self,
        grid: insides.HttpGrid,
        before_looking: Callable[[], None] = lambda: None,
        mailboxes: Mailboxes | None = None,
    ) -> None:
        self.grid = grid
        self.before_looking = before_looking
        self.mailboxes = mailboxes or Mailboxes()
        self.node_of: dict[str, int] = {}  # of every message that waits for an answer
        self.incoming: dict[
            str, Incoming
        ] = {}  # answers of which not every piece has come, by the message's number

    def nodes(self) -> dict[int, str]:
        self.before_looking()
        return {node.node_id: bytes(node.public_key).decode() for node in self.grid.get_nodes()}

    def expect(self, most: int) -> None:
        self.mailboxes.expect(most)

    def send(self, kind: str, blocks: Mapping[int, bytes], seconds: float) -> dict[str, int]:
        numbers: dict[str, int] = {}
        nodes = list(blocks)
        for some in (nodes[start : start + TOGETHER] for start in range(0, len(nodes), TOGETHER)):
            messages = [
                Message(to_record(blocks[node]), dst_node_id=node, message_type=kind, ttl=seconds)
                for node in some
            ]
            for node, number in zip(some, self.pushed(messages), strict=False):
                if number:
                    numbers[number] = node
            if self.mailboxes.loop is not None:
                self.keep(messages)
            self.mailboxes.posted(some)
        self.node_of |= numbers
        return numbers

    def keep(self, messages: Sequence[Message]) -> None:
        """Leaves the pieces of small messages at the port, where sites ask for them."""
        for message in messages:
            if isinstance(message.content["covey"], ConfigRecord):
                for number, piece in insides.get_all_nested_objects(message).items():
                    self.mailboxes.questions.keep(number, piece.deflate())

    def pushed(self, messages: Sequence[Message]) -> list[str]:
        """The messages' numbers once the SuperLink has all of their pieces, for which its database may be too busy."""
        until = time.monotonic() + SUPERLINK_SECONDS
        while True:
            try:
                return list(self.grid.push_messages(messages))
            except insides.ObjectPushError as error:  # those that are there are not sent again
                if time.monotonic() > until:
                    raise RunError(
                        f"the SuperLink has not stored a message for {SUPERLINK_SECONDS:.0f} s; "
                        "resume with covey serve --resume"
                    ) from error
                time.sleep(1.0)

    def collect(self, numbers: Sequence[str], *, most: int, until: float) -> dict[str, Response]:
        self.before_looking()  # a round may be long
        there = {number: self.mailboxes.standing(self.node_of.get(number, 0)) for number in numbers}
        unheard = [number for number in numbers if number not in self.incoming]
        here = {number: self.node_of.get(number, 0) for number in unheard if there[number] == "here"}
        responses = self.announced(self.mailboxes.worth_asking(here), most)
        for number in numbers:
            if there[number] == "gone":
                self.incoming.pop(number, None)
                responses[number] = Response(error=ERRORS[insides.ErrorCode.NODE_UNAVAILABLE])
        pull = fetcher(self.runtime.PullObject, self.grid.node, self.grid.run.run_id)

        def fetch(piece: str) -> bytes | None:
            kept = self.mailboxes.answers.take(piece)
            return kept if kept is not None else pull(piece)

        for number in [number for number in numbers if number in self.incoming]:
            if time.monotonic() > until:
                break
            try:
                if self.incoming[number].take(fetch):
                    message = self.incoming[number].message()
                    responses[number] = response_of(message, most, ERRORS)
            except TooLarge as no:
                responses[number] = Response(refused=f"its answer is not read: {no}")
            except ValueError as error:
                responses[number] = Response(error=str(error))
            if number in responses:
                self.confirm(self.incoming.pop(number).number)
        for number in responses:
            self.node_of.pop(number, None)
        self.mailboxes.answered.difference_update(responses)
        return responses

    def announced(self, numbers: Sequence[str], most: int) -> dict[str, Response]:
        """Looks which answers have been announced; those that are refused at once."""
        refused: dict[str, Response] = {}
        if not numbers:
            return refused
        pulled = self.runtime.PullMessages(insides.runtime_pb2.PullAppMessagesRequest(message_ids=numbers))
        for head, tree in zip(pulled.messages_list, pulled.message_object_trees, strict=True):
            number = head.metadata.reply_to_message_id
            try:
                self.incoming[number] = Incoming(tree, most)
            except TooLarge as no:
                refused[number] = Response(refused=f"its answer is not read: {no}")
                self.confirm(tree.object_id)
        return refused

    def confirm(self, message: str) -> None:
        """Lets the SuperLink drop a message that is not needed any more."""
        self.runtime.ConfirmMessageReceived(
            insides.message_pb2.ConfirmMessageReceivedRequest(
                node=self.grid.node, run_id=self.grid.run.run_id, message_object_id=message
            )
        )

    @property
    def runtime(self) -> insides.RuntimeHttpClient:
        return insides.runtime_of(self.grid)


@contextlib.contextmanager
def flower_run(
    link: Link,
    keys: Callable[[], Mapping[str, str]],
    mailboxes: Mailboxes | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[SuperLinkTransport]:
    """A run at the SuperLink, driven from this process; `keys` gives the public keys (and names) that it may know now.

    A key that is taken off is off for good: the SuperLink never registers it again.
    """
    versions = [insides.RuntimeVersionHttpInterceptor(component_name="covey")]
    retry = patient(insides.make_simple_http_retry_invoker(), link)

    def client(kind: Any) -> contextlib.closing[Any]:
        """One of Flower's clients of the SuperLink."""
        settings = link.client_settings
        return contextlib.closing(
            kind.from_server_address(**settings, interceptors=versions, retry_invoker=retry)
        )

    known: dict[str, str] = {}

    def let_in() -> None:
        """Registers the sites that were added to the list since, and drops those that were taken off it."""
        now = dict(keys())
        if now.keys() == known.keys():
            return
        with client(insides.ControlHttpClient) as control:
            let_in_only(control, now, say)
        known.clear()
        known.update(now)

    let_in()
    with client(insides.ControlHttpClient) as control:
        run = started(control)
    with client(insides.RuntimeHttpClient) as runtime:
        grid = grid_of(link, acquire(runtime, run))
    heart = insides.HeartbeatSender(lambda: beat(insides.runtime_of(grid)))
    heart.start()
    done = insides.SubStatus.FAILED
    try:
        begin_task(grid)
        yield SuperLinkTransport(grid, let_in, mailboxes)
        done = insides.SubStatus.COMPLETED
    except insides.RunNotRunningException as error:
        raise RunError(STOPPED) from error
    except (httpx.TransportError, httpx.HTTPStatusError) as error:
        raise RunError(
            f"the SuperLink has not answered for {SUPERLINK_SECONDS:.0f} s; resume with covey serve --resume: {error}"
        ) from error
    finally:
        insides.retry_of(grid).max_tries = 1
        heart.stop()
        with contextlib.suppress(httpx.HTTPError, RunError, insides.RunNotRunningException):
            insides.runtime_of(grid).PushTaskOutput(
                insides.runtime_pb2.PushTaskOutputRequest(sub_status=done, details="")
            )
        grid.close()


def started(control: insides.ControlHttpClient) -> int:
    """The number of a new run at the SuperLink; a run has to have an app, so there is one that does nothing."""
    fab = insides.Fab(hash_str="", content=insides.build_fab_from_files(APP)[0], verifications={})
    return int(control.StartRun(insides.control_pb2.StartRunRequest(fab=insides.fab_to_proto(fab))).run_id)


def grid_of(link: Link, token: str) -> insides.HttpGrid:
    """Flower's way to the sites, which waits as long as we do."""
    settings = link.client_settings
    grid = insides.HttpGrid(
        settings["server_address"], settings["insecure"], settings["root_certificates"], token=token
    )
    patient(insides.retry_of(grid), link)
    insides.http_of(insides.runtime_of(grid)).timeout = httpx.Timeout(REPLY_SECONDS, connect=60)
    return grid


def begin_task(grid: insides.HttpGrid) -> None:
    """Says to Flower's own functions which task of which run this process works on."""
    given = insides.runtime_of(grid).PullTaskInput(insides.runtime_pb2.PullTaskInputRequest())
    insides.TaskIdentity.task_id, insides.TaskIdentity.run_id = given.task_id, given.run.run_id
    insides.TaskIdentity.node_id = given.context.node_id
    grid.set_run(insides.run_from_proto(given.run))


def beat(runtime: insides.RuntimeHttpClient) -> bool:
    """One sign of life; whether the SuperLink still has the run is for the next request to find out.

    Flower's own would send this process an interrupt, which is what a user does.
    """
    with contextlib.suppress(httpx.HTTPError, RunError, insides.RunNotRunningException):
        runtime.SendTaskHeartbeat(insides.runtime_pb2.SendTaskHeartbeatRequest())
    return True


def patient(retry: insides.RetryInvoker, link: Link) -> insides.RetryInvoker:
    """Tries for a while, also where the SuperLink failed because its database was busy.

    What the SuperLink does not admit any more is an exception of the request, not an interrupt of the process.
    """
    retry.max_time = SUPERLINK_SECONDS
    gives_up = retry.should_giveup
    assert gives_up is not None

    def should_give_up(error: Exception) -> bool:
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
        if status == httpx.codes.UNAUTHORIZED:
            raise RunError(STOPPED)
        if link.has_ended():
            raise RunError("the SuperLink has ended; resume with covey serve --resume")
        return bool(status != httpx.codes.INTERNAL_SERVER_ERROR and gives_up(error))

    retry.should_giveup = should_give_up
    return retry


def let_in_only(
    control: insides.ControlHttpClient, names: Mapping[str, str], say: Callable[[str], None] = lambda _: None
) -> None:
    """Makes the SuperLink know these keys and no other; it remembers all that it ever knew, also those taken off."""
    nodes = control.ListNodes(insides.control_pb2.ListNodesRequest()).nodes_info
    known = {bytes(node.public_key).decode(): node for node in nodes}
    for key, node in known.items():
        if node.status == insides.NodeStatus.UNREGISTERED:
            if key in names:
                say(f"site {names[key]} was taken off the SuperLink's list for good: it must make a new key")
        elif key not in names:
            control.UnregisterNode(insides.control_pb2.UnregisterNodeRequest(node_id=node.node_id))
    for key in names.keys() - known.keys():
        try:
            control.RegisterNode(
                insides.control_pb2.RegisterNodeRequest(public_key=key.encode(), name=names[key])
            )
        except httpx.HTTPStatusError as error:
            raise RunError(f"site {names[key]} could not be registered: {error.response.text}") from error


def acquire(runtime: insides.RuntimeHttpClient, run: int, seconds: float = SUPERLINK_SECONDS) -> str:
    """The right to act as this run's server; tasks of earlier, broken runs are passed over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = runtime.AcquireTask(
            insides.runtime_pb2.AcquireTaskRequest(supported_task_types=[insides.TaskType.SERVER_APP])
        )
        if answer.token and answer.task.run_id == run:
            return str(answer.token)
        if not answer.token:
            time.sleep(0.2)
    raise RunError("the SuperLink did not hand out the run")
