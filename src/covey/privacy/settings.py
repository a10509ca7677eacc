"""The table [private]: how what clients send in training is protected."""

from typing import Annotated, Literal

from covey.errors import UserError
from covey.privacy.accountant import Accountant
from covey.settings import ClipLength, Count, Epsilon, Range, only_with, validated_in

Level = Literal["client", "local", "example"]
GRADIENT = 1.0  # the clip length of a sample's gradient, unless another is given


@validated_in("private")
class Private:
    """Differential privacy for what clients send in training, whatever the method.

    Give `epsilon`, and the noise is found; or `noise`, and the report says what it costs.

    Args:
        level: client: the server adds noise to sums of clipped updates, which hides whole clients; local: every client
            adds noise to its own; example: noise on clipped gradients in training, which hides single samples.
        epsilon: the most privacy loss of all updates of the run; none: what `noise` makes of it.
        delta: the chance that the loss is larger; at most about 1 / clients (client), 1 / samples (example).
        noise: standard deviation in clip lengths; none: the least that keeps to `epsilon`.
        clip: the longest update (example: gradient of a sample) that counts in full, or adaptive: follows a quantile;
            auto: adaptive at the client level, 1 at the example level.
        quantile: share of the updates that an adaptive clip length lets through in full.
        first_clip: the adaptive clip length of the first round.
        sampling: poisson: a method that draws clients uniformly lets chance decide for each by itself, which costs
            least; method: as the method draws.
        accountant: pld (exact up to rounding) or rdp.
        least: the fewest clients of a group: smaller ones are merged; with secure at least 3.
        secure: whether the server is shown sums of whole numbers only (SecAgg+), and no client's update; alone, or with
            noise. Without noise it needs a number for clip.
        neighbours: with secure: how many other clients each shares masks and secrets with, an odd number counts as the
            next even one; auto: all of them up to 100 clients, then as many as are safe if a fifth collude.
        noise_from: with secure: the server adds the noise to the sum, or the clients each their share before it.
        bands: more than 1: noise of a round is taken back in part by that of the next ones (DP-FTRL, banded matrix
            factorisation), and a client is drawn at most once in that many rounds. Simulations, client level, and a
            number for clip.
        evaluations: privacy loss of one evaluation on a client's own test data; none: such evaluations are exact in a
            simulation, and refused at real sites.
    """

    level: Level = "client"
    epsilon: Epsilon | None = None
    delta: Annotated[float, Range(1e-15, below=1)] = 1e-5
    noise: Annotated[float, Range(1e-9, 1e9)] | None = None
    clip: ClipLength | Literal["auto", "adaptive"] = "auto"
    quantile: Annotated[float, Range(above=0, below=1)] = 0.5
    first_clip: ClipLength = 0.1
    sampling: Literal["poisson", "method"] = "poisson"
    accountant: Accountant = "pld"
    least: Count = 1
    secure: bool = False
    neighbours: Annotated[int, Range(4)] | Literal["auto"] = "auto"
    noise_from: Literal["server", "clients"] = "server"
    bands: Annotated[int, Range(1, 64)] = 1
    evaluations: Epsilon | None = None

    @property
    def has_noise(self) -> bool:
        """Whether there is any; secure sums may have none."""
        return self.epsilon is not None or self.noise is not None

    @property
    def clip_length(self) -> float | Literal["adaptive"]:
        """The clip length, or that it follows a quantile."""
        if self.clip != "auto":
            return self.clip
        return GRADIENT if self.level == "example" else "adaptive"

    def __post_init__(self) -> None:
        self.check_together()
        quiet = not self.has_noise
        for names, holds, what in (
            ("quantile first_clip", self.clip_length == "adaptive", 'private.clip = "adaptive"'),
            ("sampling accountant", self.level == "client", 'private.level = "client"'),
            ("noise_from neighbours", self.secure, "private.secure = true"),
            ("noise_from delta accountant", not quiet, "private.epsilon or private.noise"),
        ):
            only_with("private", self, names, holds, what)

    def check_together(self) -> None:
        """Refuses settings that contradict each other."""
        if self.secure and (
            self.level != "client" or (self.clip_length == "adaptive" and not self.has_noise)
        ):
            raise UserError(
                f'private.secure adds up updates of a known length: it needs level = "client" (it is "{self.level}") '
                f"and, without private.epsilon or private.noise, a number for private.clip (it is {self.clip})"
            )
        plain = self.level == "client" and not self.secure and self.clip_length != "adaptive"
        if self.bands > 1 and not (plain and self.sampling == "poisson"):
            raise UserError(
                f'private.bands is {self.bands}, which needs level = "client" (it is "{self.level}"), a number for '
                f'private.clip (it is {self.clip}), sampling = "poisson", and no secure sums'
            )
        if not (self.secure and not self.has_noise) and (self.epsilon is None) == (self.noise is None):
            raise UserError(
                f"private.epsilon is {self.epsilon} and private.noise {self.noise}; give one of them: it says the other"
            )
        if self.clip_length == "adaptive" and self.level != "client":
            raise UserError(
                f'private.clip is "{self.clip}", which needs sums of clients; with level = "{self.level}" give a number'
            )
        if self.level == "example" and self.epsilon is None:
            raise UserError(
                "private.noise is given, of which every client would make another epsilon; with level = "
                '"example" give private.epsilon'
            )
