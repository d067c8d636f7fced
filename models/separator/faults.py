"""What a user can mend of what is read and written here, in one line: what came, what was expected, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def told(error: Exception) -> str:
    """Say an error on one line; of the system's own also what to do."""
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split())
    place = "a file" if error.filename is None else f"'{error.filename}'"
    return f"{place} can't be read or written ({error.strerror}); mend that, or name another place, and start it again"


def load_weights(path: Path, expected: str, *, device: str = "cpu") -> dict[str, Any]:
    """Read a file of torch's that holds values by name.

    Raises:
        ValueError: It isn't such a file; expected says what it should be.
        OSError: It can't be read.
    """
    import torch

    try:
        kept = torch.load(path, map_location=device, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises whatever reading zip files and pickles does
        raise ValueError(f"{path} isn't {expected}: it isn't a whole file of torch's weights") from error
    if not isinstance(kept, dict):
        raise ValueError(f"{path} isn't {expected}: it holds something else")
    return kept
