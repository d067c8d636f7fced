"""Values -> one HTML page that needs nothing else: no script, no font, no picture from elsewhere.

Jinja2 escapes every value; the content security policy forbids what could come in all the same: it allows the page's
own style, told by its hash, and nothing more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cascade.pipeline import Distribution
from cascade.rendering import clock, names_only, one_line
from cascade.reporting.timeline import plain_reason

TEMPLATES: Final = Path(__file__).parent / "templates"

UNKNOWN: Final = "–"


def render(template: str, values: Mapping[str, object]) -> str:
    """Fill in a template of this package."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    common = {"style": Markup(style), "policy": policy(style)}  # noqa: S704 (our own file)
    return _environment().get_template(template).render({**common, **values})


def policy(style: str) -> str:
    """Return a content security policy that allows this style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": clock,
        "finite": finite,
        "names_only": names_only,
        "number": number,
        "reason": plain_reason,
        "seconds": seconds_of,
    }
    return environment


def _plain(value: object) -> object:
    """Leave out of a text what cannot be seen, and could make it read as another."""
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: float | None, digits: int = 1) -> str:
    """Return a number to so many digits after the point; a dash where it is not known."""
    return UNKNOWN if value is None else f"{value:z.{digits}f}"


def finite(value: float, digits: int) -> str:
    """Return a number; a dash for NaN and infinity, which stand for none."""
    return number(value if math.isfinite(value) else None, digits)


def seconds_of(values: Distribution | None) -> str:
    """Say a delay or a latency."""
    return "not known" if values is None else f"{values.mean_s:.2f} s on average, 95 % within {values.p95_s:.2f} s"


def speeds(stages_s: Mapping[str, float], audio_s: float) -> list[tuple[str, str]]:
    """Return each stage's computing time over the audio's length, and the sum."""
    if not audio_s:
        return []
    rows = [(stage, spent_s) for stage, spent_s in stages_s.items()]
    return [(name, f"{spent_s / audio_s:.3f}") for name, spent_s in [*rows, ("all", sum(stages_s.values()))]]


def made_with(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return configuration and versions as in summary.json (Provenance.as_dict), a row for each value."""
    return list(_flat("", made))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield what is in a JSON value, each with where it is."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for place, inner in enumerate(value):
            yield from _flat(f"{name}[{place}]", inner)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
