"""The pages as a browser shows them: on a phone and on a desk, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cascade.envelope import Envelope
from cascade.errors import AudioError
from cascade.output.report import write_report
from cascade.pipeline import Decision
from cascade.reporting.benchmark import benchmark_page
from cascade.reporting.recordings import recordings_page
from cascade.run import Done, Failed
from cascade.shbench.results import run_plan
from cascade.types import AdmitReason, Span, WithholdReason, seconds
from tests import tone_benchmark as tones
from tests.browser import CHROMIUM, CONTRASTS, Page, browsing, pixels
from tests.test_output_recordings import HEARD

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium was found; name one with CASCADE_TEST_CHROMIUM, or install one on the PATH"
)

LONG_NAME = "a_name_without_any_place_to_break_it_" * 4 + "<script>alert(1)</script>.wav"
PHONES = (320, 360)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every reason, a long name, and a recording that could not be heard."""
    reasons = [*AdmitReason, *WithholdReason]
    turns = tuple(
        Decision(
            Span(seconds(place * 8 + 0.5), seconds(place * 8 + 7)), "main", reason in set(AdmitReason), reason,
            0.1 * place, 0.5,
        )
        for place, reason in enumerate(reasons)
    )  # fmt: skip
    speed = replace(HEARD.performance, audio_s=len(reasons) * 8.0)
    long = replace(
        HEARD, name=LONG_NAME, decisions=turns, performance=speed, envelope=Envelope({5: 0.5, 6: 1.0, 7: 0.2})
    )
    path = tmp_path_factory.mktemp("pages") / "recordings.html"
    results: list[Done | Failed] = [
        Done("a", HEARD, None),
        Failed("b.wav", AudioError("'b.wav' is no recording")),
        Done("c", long, None),
    ]
    write_report(path, recordings_page(results))
    return path


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plots')")
    folder = tmp_path_factory.mktemp("benchmark")
    tones.write(folder / "data", recordings=2)
    plan = tones.plan_of(folder / "data")
    page = benchmark_page(plan, run_plan(plan, None, tones.Watch(), load=tones.loader()))
    write_report(folder / "benchmark.html", page)
    return folder / "benchmark.html"


@pytest.fixture(params=["recordings", "benchmark"])
def path(request: pytest.FixtureRequest) -> Path:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Path)
    return found


def open_all(browser: Page) -> None:
    """Unfold what is folded: it must fit as well."""
    browser.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")


@pytest.mark.parametrize("width", [*PHONES, 1280])
def test_nothing_is_wider_than_the_window(browser: Page, path: Path, width: int) -> None:
    browser.open(path, width)
    open_all(browser)
    assert browser.ask("document.documentElement.scrollWidth") == width
    assert browser.ask("innerWidth") == width


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_not_blank_and_nothing_is_refused(browser: Page, path: Path, dark: bool) -> None:
    browser.complaints.clear()
    browser.open(path, 360, dark=dark)
    shown = pixels(browser.screenshot())
    assert shown.shape[:2] == (browser.ask("document.documentElement.scrollHeight"), 360)
    assert shown.shape[0] > 1000
    inked = (abs(shown - shown[0, 0]) > 0.2).any(axis=2)
    assert 0.02 < inked.mean() < 0.6
    assert browser.complaints == []
    assert browser.ask("document.querySelectorAll('script').length") == 0


def test_dark_mode_is_dark(browser: Page, path: Path) -> None:
    shown = {}
    for dark in (False, True):
        browser.open(path, 360, dark=dark)
        shown[dark] = pixels(browser.screenshot())
    assert shown[False].shape == shown[True].shape
    assert shown[False][0, 0].mean() > 0.95
    assert shown[True][0, 0].mean() < 0.15


def test_the_style_is_the_pages_own(browser: Page, path: Path) -> None:
    """A wrong hash in the policy would leave the page without one."""
    browser.open(path, 1280)
    assert browser.ask("getComputedStyle(document.body).maxWidth") == "960px"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_can_be_read(browser: Page, path: Path, dark: bool) -> None:
    browser.open(path, 360, dark=dark)
    open_all(browser)
    contrasts = browser.ask(CONTRASTS)
    assert len(contrasts) > 50
    assert [found for found in contrasts if found[0] < 4.5] == []
    sizes = browser.ask(
        "[...document.querySelectorAll('.timeline text, p, td, li')].map(e => getComputedStyle(e).fontSize)"
    )
    assert min(float(size.removesuffix("px")) for size in sizes) >= 12


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_reason_is_drawn_in_a_colour_that_stands_out(browser: Page, recordings: Path, dark: bool) -> None:
    browser.open(recordings, 1280, dark=dark)
    shown = pixels(browser.screenshot())
    boxes = browser.ask(
        "[...document.querySelectorAll('#r3 .legend svg')].map(e => e.getBoundingClientRect())"
        ".map(b => [b.x, b.y + scrollY, b.width, b.height])"
    )
    assert len(boxes) == len([*AdmitReason, *WithholdReason])
    swatches = [shown[round(y) + 1 : round(y + h) - 1, round(x) + 1 : round(x + w) - 1] for x, y, w, h in boxes]
    for swatch in swatches:
        assert abs(swatch - shown[0, 0]).max() > 0.3
    means = [swatch.mean(axis=(0, 1)) for swatch in swatches]
    assert min(abs(a - b).max() for place, a in enumerate(means) for b in means[:place]) > 0.02


def test_the_labels_of_the_axis_stand_apart(browser: Page, recordings: Path) -> None:
    browser.open(recordings, 320)
    rows = browser.ask(
        "[...document.querySelectorAll('svg.timeline')].map(svg => [...svg.querySelectorAll('text')]"
        ".map(t => t.getBoundingClientRect()).map(b => [b.x, b.right, b.y]))"
    )
    assert len(rows) == 3
    for row in rows:
        assert all(left >= 0 and right <= 320 for left, right, _ in row)
        axis = [box for box in row if box[2] == max(other[2] for other in row)]
        assert all(left > before for (_, before, _), (left, _, _) in pairwise(axis))
