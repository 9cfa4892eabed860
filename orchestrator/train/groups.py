"""Parameter groups: which parameters the optimiser decays, by their role in the model. No torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from scalewright.orchestrator.errors import UserError

MATRICES = frozenset({"attention", "mlp"})
EMBEDDINGS = frozenset({"embedding", "head"})

# name in the YAML -> the roles whose parameters are decayed; None: every role
DECAY: dict[str, frozenset[str] | None] = {
    "matrices": MATRICES,
    "matrices+embeddings": MATRICES | EMBEDDINGS,
    "all": None,
    "none": frozenset(),
}


def is_decayed(role: str, decay: str) -> bool:
    """Tell whether `decay` (a key of DECAY) covers the role; raises UserError for an unknown name."""
    if decay not in DECAY:
        raise UserError(f"optimizer.decay {decay!r}: expected one of {', '.join(DECAY)}")
    roles = DECAY[decay]
    return roles is None or role in roles


def group_parameters(
    named: Iterable[tuple[str, Any]], roles: Mapping[str, str], *, decay: str, weight_decay: float
) -> list[dict[str, Any]]:
    """Split the parameters into those decayed and the rest, each in order; empty groups are left out.

    Two groups and not one a role: each costs an optimiser call a step. Asserts that the roles are a partition of the
    parameters, so that none is left untrained or trained twice.
    """
    parameters = dict(named)
    assert parameters.keys() == roles.keys(), f"roles do not cover: {sorted(parameters.keys() ^ roles.keys())}"
    assert len({id(parameter) for parameter in parameters.values()}) == len(parameters), "a parameter has two names"
    groups = {True: {"params": [], "weight_decay": weight_decay}, False: {"params": [], "weight_decay": 0.0}}
    for name, parameter in parameters.items():
        groups[is_decayed(roles[name], decay) and weight_decay != 0]["params"].append(parameter)  # type: ignore[attr-defined]
    return [group for group in groups.values() if group["params"]]
