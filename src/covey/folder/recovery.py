"""Back to the last good checkpoint of a run that one client has spoiled, and on without that client."""

from collections.abc import Callable
from dataclasses import replace

from covey.core import Fleet, State
from covey.core.checks import culprit
from covey.errors import SpoiledRunError
from covey.folder.checkpoint import read_checkpoint
from covey.folder.checksums import read_index
from covey.folder.recorder import Recorder


def gone_back(
    spoiled: SpoiledRunError, fleet: Fleet, recorder: Recorder, say: Callable[[str], None] | None = None
) -> State:
    """The state before the update that stood out, its sender barred; raises `spoiled` again where none is to be found.

    Of the checkpoints that are kept, the newest one from before that update is taken: a later one holds what the
    update made of the models, even if that is finite.
    """
    index = read_index(recorder.folder)
    kept = index.kept if index is not None else ()
    found = culprit(fleet, since=min((one.round for one in kept), default=0))
    good = [one for one in kept if found is not None and one.round < found[0]]
    if index is None or found is None or not good:
        raise spoiled
    round, client, times = found
    why = f"its update in round {round} was {times:.3g} times as long as the others' and spoiled the run"
    barred = {**fleet.ledger.barred, client: why}
    checkpoint = read_checkpoint(recorder.folder, replace(index, kept=tuple(good)))
    fleet.load(checkpoint.fleet)
    fleet.ledger.barred = barred
    fleet.ledger.note_refusal(client, kind="train", round=round, reason=why)
    recorder.go_back(checkpoint)
    if say is not None:
        say(f"{spoiled}. Back to round {checkpoint.state.round} and on without client {client}: {why}")
    return checkpoint.state
