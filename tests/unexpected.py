"""What a test hands to a part of a node as its ``on_fatal``."""


def unexpected(error: BaseException) -> None:
    """Nothing fails for good in this test: the event loop reports what does."""
    raise error
