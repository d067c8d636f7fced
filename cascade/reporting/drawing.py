"""An SVG that a plotting library drew -> one that can stand within a page of a strict policy.

A page that allows no style but its own shows no `style` attribute: what they say is said by SVG's own attributes here.
Only elements and attributes that draw are kept, and ids get a prefix, since those of a page must all be different.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

from markupsafe import Markup

from cascade.errors import BackendError

SVG: Final = "{http://www.w3.org/2000/svg}"
XLINK_HREF: Final = "{http://www.w3.org/1999/xlink}href"

ELEMENTS: Final = frozenset(
    ["svg", "g", "defs", "path", "use", "clipPath", "rect", "text", "tspan", "line", "circle", "polyline", "polygon"]
)

GEOMETRY: Final = frozenset(
    ["d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "width", "height", "points", "viewBox",
     "transform"]
)  # fmt: skip

PRESENTATION: Final = frozenset(
    ["fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap",
     "stroke-linejoin", "stroke-dasharray", "stroke-dashoffset", "stroke-miterlimit", "opacity", "clip-path",
     "text-anchor", "font-size", "font-family", "font-weight", "font-style"]
)  # fmt: skip

OWN_PLACE: Final = re.compile(r"url\(#([\w.-]+)\)")
"""A reference to an element of the same drawing; no other may stand in an attribute."""

FONT: Final = re.compile(r"(?P<size>[\d.]+px)\s+(?P<family>.+)")
"""The short form of a font, which has no attribute of its own."""


def inlined(svg: bytes, prefix: str, title: str, description: str) -> Markup:
    """Return a drawing as a part of a page; title and description are told to those who cannot see it.

    Raises:
        BackendError: It is no SVG.
    """
    try:
        drawn = ElementTree.fromstring(svg)  # noqa: S314 (our own figure)
    except ElementTree.ParseError:
        raise BackendError("the figure is no SVG; expected one from matplotlib") from None
    kept = _kept(drawn, prefix)
    for attribute in ("width", "height"):
        kept.attrib.pop(attribute, None)  # the page gives the size
    kept.attrib |= {"role": "img", "aria-labelledby": f"{prefix}title {prefix}desc", "stroke-linejoin": "round"}
    for place, (name, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(name, id=f"{prefix}{name}")
        element.text = text
        kept.insert(place, element)
    return Markup(ElementTree.tostring(kept, encoding="unicode"))  # noqa: S704 (written anew, with all text escaped)


def _kept(element: ElementTree.Element, prefix: str) -> ElementTree.Element:
    """Return an element with what of it draws."""
    copy = ElementTree.Element(element.tag.removeprefix(SVG), _attributes(element, prefix))
    copy.text, copy.tail = element.text, element.tail
    copy.extend(_kept(child, prefix) for child in element if str(child.tag).removeprefix(SVG) in ELEMENTS)
    return copy


def _attributes(element: ElementTree.Element, prefix: str) -> dict[str, str]:
    attributes = {**_styled(element.get("style", "")), **element.attrib}
    kept = {name: value for name, value in attributes.items() if name in GEOMETRY}
    for name in PRESENTATION & attributes.keys():
        value = OWN_PLACE.sub(rf"url(#{prefix}\1)", attributes[name])
        if "url" not in OWN_PLACE.sub("", attributes[name]):
            kept[name] = value
    if "id" in attributes:
        kept["id"] = prefix + attributes["id"]
    target = attributes.get("href", attributes.get(XLINK_HREF, ""))
    if target.startswith("#"):
        kept["href"] = f"#{prefix}{target[1:]}"
    return dict(sorted(kept.items()))


def _styled(style: str) -> dict[str, str]:
    """Read a style attribute."""
    pairs = (pair.partition(":") for pair in style.split(";") if ":" in pair)
    found = {name.strip(): value.strip() for name, _, value in pairs}
    if font := FONT.fullmatch(found.pop("font", "")):
        found |= {"font-size": font["size"], "font-family": font["family"]}
    return found
