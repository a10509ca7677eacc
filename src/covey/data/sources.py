"""Which files the image data sets are read from, and where people get them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from covey.errors import UserError
from covey.files import data_folder

ARRAYS = "train.npz and test.npz, each with x (uint8, N,H,W,C), y and classes (numpy.savez writes them)"
HUB = 'with the extra huggingface: data.name = "huggingface", data.path = "{}", data.label = "{}", data.client = "{}"'


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file at its official place.

    name: of the file. size: bytes. sha256: of all of it.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of one data set.

    folder: its own among the data sets'. files: what must lie there, in words. origin: who made it, and where it is.
    at: the address that its remote files are under. remote: what is got from there. otherwise: how else to get it.
    """

    folder: str
    files: str
    origin: str
    name: str = ""
    at: str = ""
    remote: tuple[Remote, ...] = ()
    otherwise: str = ""

    def place(self, folder: Path | None = None) -> Path:
        """Where its files are looked for: the given folder, else its own among the data sets'."""
        return Path(folder) if folder is not None else data_folder() / self.folder

    @property
    def size(self) -> int:
        """Bytes of what is got."""
        return sum(file.size for file in self.remote)

    def lacks(self, folder: Path, missing: list[str]) -> UserError:
        """The sentence for missing files: which, where they were looked for, how to get them."""
        not_here = f"missing {', '.join(missing)} in {folder.absolute()}"
        by_hand = (
            f"get {self.origin}, as {self.files}, "
            "and put the files there, or set COVEY_DATA to the folder that holds the data sets' folders"
        )
        if self.remote:
            return UserError(
                f"{self.name} is not here; get it with: covey datasets get {self.name} ({said_size(self.size)}). "
                f"({not_here}; COVEY_DATA names another folder of data sets)"
            )
        return UserError(f"{not_here}: {by_hand}{f'; or {self.otherwise}' if self.otherwise else ''}")

    def need(self, folder: Path, wanted: list[str]) -> None:
        """Refuse with one sentence when files are missing."""
        missing = [name for name in wanted if not (folder / name).is_file()]
        if missing:
            raise self.lacks(folder, missing)


def said_size(size: int) -> str:
    """Bytes in words."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


# Data set, file, bytes and SHA-256: those that TensorFlow Datasets publishes for the same addresses; those of MNIST and
# Fashion-MNIST were also computed from copies whose MD5 are the official ones.
REMOTE = """\
mnist train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
mnist train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
mnist t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
mnist t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
fashion-mnist train-images-idx3-ubyte.gz 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
fashion-mnist train-labels-idx1-ubyte.gz 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
fashion-mnist t10k-images-idx3-ubyte.gz 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
fashion-mnist t10k-labels-idx1-ubyte.gz 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
emnist gzip.zip 561753746 fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e
cifar10 cifar-10-binary.tar.gz 170052171 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
cifar100 cifar-100-binary.tar.gz 168513733 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec
svhn train_32x32.mat 182040794 435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8
svhn test_32x32.mat 64275384 cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b
"""


def remote_of(dataset: str) -> tuple[Remote, ...]:
    """The files of a data set at its official place."""
    told = (line.split() for line in REMOTE.splitlines())
    return tuple(
        Remote(name=file, size=int(size), sha256=sha) for name, file, size, sha in told if name == dataset
    )


SOURCES: Final[dict[str, Source]] = {
    source.name: replace(source, remote=remote_of(source.name))
    for source in (
        Source(
            name="mnist",
            folder="mnist",
            files=(
                "the four official idx files, .gz or not; qmnist_writers.npz (writer_train, writer_test) for writers"
            ),
            origin="MNIST (LeCun, Cortes, Burges; https://storage.googleapis.com/cvdf-datasets/mnist/)",
            at="https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        Source(
            name="fashion-mnist",
            folder="fashion_mnist",
            files="the four official idx files, .gz or not",
            origin="Fashion-MNIST (Zalando Research; https://github.com/zalandoresearch/fashion-mnist)",
            at="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        Source(
            name="emnist",
            folder="emnist",
            files="the four official idx files of a split (emnist-byclass-train-images-idx3-ubyte, ...), .gz or not",
            origin="EMNIST (Cohen et al. 2017; https://www.nist.gov/itl/products-and-services/emnist-dataset)",
            at="https://biometrics.nist.gov/cs_links/EMNIST/",
        ),
        Source(
            name="cifar10",
            folder="cifar10",
            files=ARRAYS,
            origin="CIFAR-10 (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html)",
            at="https://www.cs.toronto.edu/~kriz/",
        ),
        Source(
            name="cifar100",
            folder="cifar100",
            files=f"{ARRAYS}, y_coarse and coarse_classes",
            origin="CIFAR-100 (Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html)",
            at="https://www.cs.toronto.edu/~kriz/",
        ),
        Source(
            name="svhn",
            folder="svhn",
            files=ARRAYS,
            origin="SVHN, cropped digits (Netzer et al. 2011; http://ufldl.stanford.edu/housenumbers/)",
            at="http://ufldl.stanford.edu/housenumbers/",
        ),
        Source(
            name="femnist",
            folder="femnist",
            files="LEAF's train/*.json and test/*.json, or all.npz with x, y, writer and leaf_split",
            origin="FEMNIST of the LEAF benchmark (https://github.com/TalwalkarLab/leaf), which its scripts make",
            otherwise=HUB.format("flwrlabs/femnist", "character", "writer_id"),
        ),
        Source(
            name="pacs",
            folder="pacs",
            files=(
                "folders domain/class/ of images (photo, art_painting, cartoon, sketch), or all.npz "
                "(x, y, classes, domain)"
            ),
            origin="PACS (Li et al., ICCV 2017; https://domaingeneralization.github.io/), a shared folder in a browser",
            otherwise=HUB.format("flwrlabs/pacs", "label", "domain"),
        ),
    )
}
