"""Everything that cascade raises on purpose.

    CascadeError              one line for the user; exit code 2
    ├── ConfigError           a configuration that cannot be used
    ├── AudioError            a recording that cannot be read
    ├── EnrolmentError        an enrolment that says too little, or too much, about one voice
    ├── QuestionError         a question that cannot be asked
    ├── ItemsError            a benchmark's file, or predictions, that cannot be used
    ├── MissingExtraError     a Python package that a stage needs is not installed
    ├── NotReadyError         what `cascade check` finds missing before anything is heard
    ├── ModelError            a model's files are missing, or are not the ones that the manifest names
    ├── BackendError          a model or server failed on good input
    │   └── NoMoreAnswersError  and so it would on all that is still asked in this run
    └── OutputError           a place that cannot be written, or must not be overwritten

A message says what came, what was expected and what to do. It never holds audio, text or an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence


def installing(extra: str) -> str:
    """Return the command that installs what an extra requires, to be run in a checkout of cascade.

    A name without the checkout would be looked for on the package index, where `cascade` is somebody else's.
    """
    return f"pip install -e '.[{extra}]'"


def reinstalling(*requirements: str) -> str:
    """Return the command that installs packages anew which are there and broken, such as torch or silero==6.0."""
    return f"pip install --force-reinstall {' '.join(requirements)}"


class CascadeError(Exception):
    """Base of all; its text is one line that a user can act on."""


class ConfigError(CascadeError):
    """A configuration that cannot be used."""


class AudioError(CascadeError):
    """A recording that cannot be read."""


class EnrolmentError(CascadeError):
    """An enrolment that is too short, too quiet, or holds more than one voice."""


class QuestionError(CascadeError):
    """A question that cannot be asked."""


class ItemsError(CascadeError):
    """A benchmark's file, or a file of predictions, that cannot be used; names file, item and field."""


class MissingExtraError(CascadeError):
    """A Python package that a stage needs is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the Python package '{package}' is not installed; in cascade's checkout, run: {installing(extra)}"
        )


class NotReadyError(CascadeError):
    """Something that `cascade check` finds missing, said before anything is heard; one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))


class ModelError(CascadeError):
    """A model's files are missing, or are not the ones that the manifest names."""


class BackendError(CascadeError):
    """A model or a server failed on input that was right."""


class NoMoreAnswersError(BackendError):
    """The answerer answers nothing more in this run: its limit is reached, its key is wrong, its server is dead.

    Raised at once for every further question whose answer is not known already; so a run need hear nothing more for it.
    """


class OutputError(CascadeError):
    """A place that cannot be written, or must not be overwritten."""
