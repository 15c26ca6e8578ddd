"""How histories show a record: its value; if it has a key both, so that its deletion shows, too."""


def record_text(key: bytes | None, value: bytes | None) -> str:
    """``VALUE``, or ``KEY=VALUE``, or ``KEY`` alone for a record that deletes its key."""
    text = "" if value is None else value.decode("utf-8", "replace")
    if key is None:
        return text
    name = key.decode("utf-8", "replace")
    return name if value is None else f"{name}={text}"


def parse_pair(text: str) -> tuple[str, str | None]:
    """The key and the value of a record that has a key; None: it deletes the key."""
    key, is_value, value = text.partition("=")
    return key, value if is_value else None
