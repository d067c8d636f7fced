"""What every test shares: the environment is afterwards what it was before, and the model hub can be asked again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Undo what a test's code sets: some backends switch libraries offline by variables, once they are used."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
    hub = sys.modules.get("huggingface_hub.constants")  # it looks at its variable once, when it is imported
    if hub is not None and "HF_HUB_OFFLINE" not in before:
        vars(hub)["HF_HUB_OFFLINE"] = False
