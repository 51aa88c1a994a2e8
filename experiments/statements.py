"""What a run's record keeps of its statement: plain JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from tfdp.accounting.claims import Claim, strict_json


def stated(statement: Any) -> dict[str, Any]:
    """Of a statement of any room."""
    content = json.loads(statement.to_json())
    return {name: content[name] for name in ("epsilon", "delta", "claims")}


def claimed(claims: Iterable[Claim], delta: float) -> dict[str, Any]:
    """Of claims without a statement, none of which proves anything of a whole record."""
    plain = json.loads(strict_json([dataclasses.asdict(claim) for claim in claims]))
    return {"epsilon": None, "delta": delta, "claims": plain}
