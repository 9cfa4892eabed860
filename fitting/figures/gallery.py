"""Every figure by name. A new figure is a function (frames and fits in, Figure out) and one line here."""

from collections.abc import Callable

from matplotlib.figure import Figure

from scalewright.fitting.figures.ablation import ablation
from scalewright.fitting.figures.curves import training_curves
from scalewright.fitting.figures.forecasts import design, forecast
from scalewright.fitting.figures.frontier import compute_optimal, isoflop_profiles
from scalewright.fitting.figures.layers import layers
from scalewright.fitting.figures.losses import loss_against_compute, loss_against_tokens
from scalewright.fitting.figures.ratios import speed_ups
from scalewright.fitting.figures.sweeps import best_settings, sweeps
from scalewright.fitting.figures.trust import diagnostics, profile, rolling_origin, specification_curve

FIGURES: dict[str, Callable[..., Figure]] = {
    "loss-against-compute": loss_against_compute,
    "loss-against-tokens": loss_against_tokens,
    "speed-ups": speed_ups,
    "ablation": ablation,
    "training-curves": training_curves,
    "layers": layers,
    "isoflop-profiles": isoflop_profiles,
    "compute-optimal": compute_optimal,
    "sweeps": sweeps,
    "best-settings": best_settings,
    "specification-curve": specification_curve,
    "rolling-origin": rolling_origin,
    "profile": profile,
    "diagnostics": diagnostics,
    "forecast": forecast,
    "design": design,
}
