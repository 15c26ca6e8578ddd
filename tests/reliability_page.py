"""The generated part of ``docs/reliability.md``: one row for each campaign in ``docs/reliability/*.toml``."""

import tomllib
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE: Final = DOCS / "reliability.md"
REQUIRED: Final = frozenset({"what", "command", "measured", "tries", "findings"})
OPTIONAL: Final = frozenset({"seeds", "faults", "duration"})


def build_reliability_page(marker: str) -> str:
    """The hand-written part, the marker, and the table of results."""
    campaigns = [_read(path) for path in sorted((DOCS / "reliability").glob("*.toml"))]
    lines = [PAGE.read_text(encoding="utf-8").partition(marker)[0] + marker, ""]
    lines += ["| what | tries | faults | findings | repeat |", "|---|---|---|---|---|"]
    lines += [
        f"| {it['what']} | {_tries(it)} | {it.get('faults', '')} | {it['findings']} | `{it['command']}` |"
        for it in campaigns
    ]
    return "\n".join([*lines, ""])


def _read(path: Path) -> dict[str, str]:
    campaign = {key: str(value) for key, value in tomllib.loads(path.read_text(encoding="utf-8")).items()}
    unknown, missing = campaign.keys() - REQUIRED - OPTIONAL, REQUIRED - campaign.keys()
    assert not unknown and not missing, f"{path.name}: unknown {unknown}, missing {missing}"
    return campaign


def _tries(campaign: dict[str, str]) -> str:
    seeds = f"seeds {campaign['seeds']}" if "seeds" in campaign else ""
    parts = (campaign["tries"], campaign.get("duration"), seeds, campaign["measured"])
    return "; ".join(filter(None, parts))
