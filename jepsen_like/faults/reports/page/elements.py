"""Elements of a page as a tree: text is escaped when the tree is written, whatever it holds."""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from pykraft.jepsen_like.faults.plain_text import plain

Child = Element | str | None


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Element:
    """An element; children that are None and attributes that are None are left out.

    ``class_`` is the attribute ``class``, ``stroke_width`` is ``stroke-width``. Numbers have two digits.
    """
    element = Element(name)
    for key, value in attributes.items():
        if value is not None:
            element.set(key.rstrip("_").replace("_", "-"), _text(value))
    append(element, *children)
    return element


def append(parent: Element, *children: Child) -> None:
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif child is not None:
            _append_text(parent, plain(child))


def card_list(rows: Iterable[tuple[str, str, str | None]]) -> Element:
    """Numbers to see first: value, name and style of each."""
    cards = (tag("li", tag("strong", value, class_=style), tag("span", name)) for value, name, style in rows)
    return tag("ul", *cards, class_="cards")


def document(title: str, head: Sequence[Element], main: Element) -> Element:
    """A page; ``head``: what it has there beside its title."""
    return tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            *head,
            tag("title", title),
        ),
        tag("body", main),
        lang="en",
    )


def to_html(root: Element) -> str:
    """The document, from its type on."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _append_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return plain(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
