from __future__ import annotations

from xml.etree import ElementTree

import pytest

from cascade.errors import BackendError
from cascade.reporting.drawing import inlined
from cascade.shbench.paper import load_paper
from tests.made_scores import run, scores

HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt" viewBox="0 0 9 9">'
)


def drawn(inner: str) -> ElementTree.Element:
    return ElementTree.fromstring(inlined(f"{HEAD}{inner}</svg>".encode(), "p-", "A <title>", "What & why"))


def only(inner: str) -> ElementTree.Element:
    return list(drawn(inner))[2]


def test_it_has_a_title_a_description_and_no_size_of_its_own() -> None:
    root = drawn("")
    assert [(element.tag, element.text, element.get("id")) for element in root] == [
        ("title", "A <title>", "p-title"), ("desc", "What & why", "p-desc"),
    ]  # fmt: skip
    assert root.attrib == {
        "viewBox": "0 0 9 9", "role": "img", "aria-labelledby": "p-title p-desc", "stroke-linejoin": "round",
    }  # fmt: skip


def test_styles_become_attributes() -> None:
    path = only("""<path d="M0 0" style="fill: #ff0000; stroke: none; shape-rendering: crisp"/>""")
    assert path.attrib == {"d": "M0 0", "fill": "#ff0000", "stroke": "none"}
    text = only("""<text style="font: 9px 'DejaVu Sans'; text-anchor: end">x</text>""")
    assert text.attrib == {"font-size": "9px", "font-family": "'DejaVu Sans'", "text-anchor": "end"}


def test_ids_and_references_to_them_get_the_prefix() -> None:
    group = only('<g><path id="a" clip-path="url(#b)"/><use xlink:href="#a" x="1"/></g>')
    assert [element.attrib for element in group] == [
        {"id": "p-a", "clip-path": "url(#p-b)"},
        {"href": "#p-a", "x": "1"},
    ]


@pytest.mark.parametrize(
    "bad",
    [
        "<script>alert(1)</script>",
        '<image xlink:href="https://example.org/x.png"/>',
        "<foreignObject><b>x</b></foreignObject>",
        "<style>*{}</style>",
        "<metadata>when</metadata>",
    ],
)
def test_what_does_not_draw_is_left_out(bad: str) -> None:
    assert [element.tag for element in drawn(bad)] == ["title", "desc"]


@pytest.mark.parametrize(
    "attribute",
    ['onclick="alert(1)"', 'fill="url(https://example.org/x#y)"', 'style="fill: url(//x)"', 'class="x"'],
)
def test_attributes_that_do_not_draw_are_left_out(attribute: str) -> None:
    assert only(f"<rect {attribute}/>").attrib == {}


def test_a_link_to_elsewhere_is_left_out() -> None:
    assert only('<use xlink:href="https://example.org/x.svg#a"/>').attrib == {}


def test_text_stays_escaped() -> None:
    assert "&lt;script&gt;" in inlined(f"{HEAD}<text>&lt;script&gt;</text></svg>".encode(), "p-", "", "")


@pytest.mark.parametrize("svg", [b"", b"no svg", b"<svg>"])
def test_what_is_no_svg_is_said(svg: bytes) -> None:
    with pytest.raises(BackendError, match="no SVG"):
        inlined(svg, "", "", "")


def test_figure_4_keeps_its_labels_and_gets_rid_of_styles() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plots')")
    from cascade.shbench.figure import figure4

    paper = load_paper()
    svg = inlined(figure4(scores(run()), paper).svg, "f-", "t", "d")
    texts = {element.text for element in ElementTree.fromstring(svg).iter("text")}
    assert {"mine", *(system.short for system in paper.systems)} <= texts
    assert "style" not in svg
    assert "http" not in svg
