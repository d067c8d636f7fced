"""A page read by html.parser: its texts, its elements, and what it would load or run."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

APART: Final = frozenset(
    [
        "caption",
        "dd",
        "desc",
        "dt",
        "h1",
        "h2",
        "h3",
        "h4",
        "li",
        "p",
        "span",
        "summary",
        "td",
        "text",
        "th",
        "time",
        "title",
    ]
)
"""What stands apart from what is beside it, without a space between."""

VOID: Final = frozenset(["meta", "link", "br", "img", "input", "hr", "base"])


class Page(HTMLParser):
    """Elements as (tag, attributes), in order; text as it is shown, without the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.styles: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.text += " " if tag in APART else ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        self.text += " " if tag in APART else ""
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.styles.append(data)
        else:
            self.text += data

    @property
    def words(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())

    def all(self, tag: str) -> list[dict[str, str]]:
        """Return the attributes of all elements of a name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def check_self_contained(self) -> None:
        """Fail if the page would run or load anything, or is not well nested."""
        assert self.open == []
        assert not {tag for tag, _ in self.elements} & {
            "script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "foreignobject", "audio",
        }  # fmt: skip
        for tag, attributes in self.elements:
            for name, value in attributes.items():
                assert not name.startswith("on"), f"{tag} {name}"
                assert name not in ("src", "srcset", "style", "xlink:href", "action", "formaction", "ping"), (
                    f"{tag} {name}"
                )
                if name == "href":
                    assert value.startswith("#") or (tag == "a" and value.startswith("https://")), f"{tag} {value}"
                assert "url(" not in value or "url(#" in value, f"{tag} {name}"
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        (style,) = self.styles
        assert "url(" not in style
        assert "@import" not in style
