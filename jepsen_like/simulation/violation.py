"""How every ring says that an invariant is broken."""


class InvariantViolation(AssertionError):
    """An invariant that does not hold; ``name`` says which."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail
