"""Error rates that other packages count: words by jiwer, diarization by pyannote.metrics.

Both packages come with the extra `measure`. Where one is missing, its rate is None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from cascade.types import Span

COLLAR_S: Final = 0.25
"""What lies so close to a boundary of the reference, on either side, is not counted: nobody hears it more exactly.

As in NIST's evaluations; pyannote.metrics counts a collar over both sides together.
"""

_ELLIPSIS: Final = re.compile(r"\.{2,}")
"""Of three full stops Whisper's normalisation leaves one, which would count as a word."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many errors in so much reference (words or seconds); there can be more errors than reference."""

    errors: float
    total: float

    @property
    def share(self) -> float | None:
        """Errors over the reference, None where there is no reference."""
        return self.errors / self.total if self.total else None


def word_errors(reference: str, hypothesis: str) -> Rate | None:
    """Count substitutions, deletions and insertions of words, after Whisper's normalisation of both texts.

    That normalisation (Radford et al., 2022, appendix C) spells alike what is said alike: letters' case, punctuation,
    numbers, contractions, British and American spelling, and no "um". It is made for English.
    """
    try:
        import jiwer

        normalise = _normaliser()
    except ImportError:
        return None
    spoken = normalise(_ELLIPSIS.sub(" ", reference))
    if not spoken:
        return Rate(0, 0)
    counts = jiwer.process_words(spoken, normalise(_ELLIPSIS.sub(" ", hypothesis)))
    errors = counts.substitutions + counts.deletions + counts.insertions
    return Rate(errors, counts.hits + counts.substitutions + counts.deletions)


@functools.cache
def _normaliser() -> Callable[[str], str]:
    from whisper_normalizer.english import EnglishTextNormalizer

    normalise: Callable[[str], str] = EnglishTextNormalizer()
    return normalise


def diarization_errors(
    reference: Iterable[tuple[Span, str]], hypothesis: Iterable[tuple[Span, str]], whole: Span
) -> Rate | None:
    """Count the seconds that are missed, false or another speaker's, with overlap counted and COLLAR_S left out.

    reference and hypothesis are spans with their speaker, whole the recording. The names need not agree: they are
    matched so that the errors are fewest.
    """
    try:
        from pyannote.core import Annotation, Segment, Timeline
        from pyannote.metrics.diarization import DiarizationErrorRate
    except ImportError:
        return None

    def annotation(turns: Iterable[tuple[Span, str]]) -> Any:
        made = Annotation()
        for track, (span, speaker) in enumerate(turns):
            made[Segment(span.start_s, span.end_s), track] = speaker
        return made

    metric = DiarizationErrorRate(collar=2 * COLLAR_S, skip_overlap=False)
    uem = Timeline([Segment(whole.start_s, whole.end_s)])
    parts = metric(annotation(reference), annotation(hypothesis), uem=uem, detailed=True)
    return Rate(parts["missed detection"] + parts["false alarm"] + parts["confusion"], parts["total"])
