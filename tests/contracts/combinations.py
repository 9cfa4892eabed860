"""Every method x gate x position that is allowed, small enough to build by the hundred."""

from scalewright.models.gating import GATES, POSITIONS
from scalewright.models.inits import INITS
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelError, ModelSpec

SMALL = {"width": 16, "heads": 2, "vocab_size": 19, "context": 12, "mlp_width": 24}


def allowed(method: str, gate: str, position: str) -> bool:
    try:
        spec_of((method, gate, position))
    except ModelError:
        return False
    return True


def spec_of(entry, *, depth=2, init=None, **changes) -> ModelSpec:
    method, gate, position = entry
    options = {} if gate == "none" else {"position": position}
    return ModelSpec(
        **{**SMALL, "depth": depth, "method": method, "gate": gate, "gate_options": options, "init": init, **changes}
    )


ENTRIES = [
    (method, gate, position)
    for method in METHODS
    for gate in GATES
    for position in POSITIONS
    if (gate != "none" or position == "architecture") and allowed(method, gate, position)
]
MAIN = [entry for entry in ENTRIES if entry[2] == "architecture" and entry[1] in ("none", "gpas")]
UNSOURCED = [
    (method, gate, "architecture")
    for method in METHODS
    for gate in GATES
    if (method, gate, "architecture") not in ENTRIES
]
ALL_INITS = list(INITS)


def name_of(value) -> str:
    return "+".join(value).replace("+architecture", "") if isinstance(value, tuple) else str(value)
