"""A password in an address is for the one who uses it: it is never written into a file or said."""

import re
from collections.abc import Mapping
from typing import Any

from covey.errors import UserError

USER = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/@:]*:)(?P<secret>(?!\d{1,5}/)\S+)(?=@)", re.IGNORECASE
)
# A name without a password is a token at many servers: https://TOKEN@host. Of a database it is the user's.
TOKEN = re.compile(
    r"(?P<before>\b(?:[a-z0-9]+\+)?https?://)(?P<secret>(?!\*\*\*@)[^\s/@:]+)(?=@)", re.IGNORECASE
)
QUERY = re.compile(
    r"(?P<before>[?&][\w.-]*(?:password|passwd|pwd|token|secret|signature|api[_-]?key|access[_-]?key)=)"
    r"(?P<secret>[^\s&#\"']+)",
    re.IGNORECASE,
)


def without_password(text: str) -> str:
    """The text with *** for each password in an address."""
    for pattern in (USER, TOKEN, QUERY):
        text = pattern.sub(lambda found: found["before"] + "***", text)
    return text


def check_no_password(where: str, value: Any) -> None:
    """Refuses settings that hold one: all settings of a run are written into its folder."""
    if isinstance(value, str):
        if without_password(value) != value:
            raise UserError(
                f"{where} is {without_password(value)!r} with a password, which would be written into config.toml; "
                "give it in the environment (MLflow: MLFLOW_TRACKING_URI, or MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD)"
            )
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            check_no_password(f"{where}.{name}" if where else str(name), inner)
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            check_no_password(f"{where}[{at}]", inner)
