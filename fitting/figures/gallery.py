"""Every figure by name. A new figure is a file (a function of frames and fits that returns a Figure) and one line here.

With a section it is on the report page; `inputs` then says what it is drawn from.
"""

from scalewright.fitting.figures.ablation import ablation
from scalewright.fitting.figures.contours import contours
from scalewright.fitting.figures.curves import training_curves
from scalewright.fitting.figures.entry import FigureEntry
from scalewright.fitting.figures.forecasts import design, forecast
from scalewright.fitting.figures.frontier import compute_optimal, isoflop_profiles
from scalewright.fitting.figures.layers import LAYERS_CAPTION, largest_runs, layers
from scalewright.fitting.figures.losses import loss_against_compute, loss_against_tokens
from scalewright.fitting.figures.ratios import speed_ups
from scalewright.fitting.figures.sweeps import best_settings, sweeps
from scalewright.fitting.figures.trust import diagnostics, profile, rolling_origin, specification_curve

FIGURES: dict[str, FigureEntry] = {
    "speed-ups": FigureEntry(speed_ups, "speed-ups", reads=("finished", "compare")),
    "loss-against-tokens": FigureEntry(loss_against_tokens, "speed-ups"),
    "loss-against-compute": FigureEntry(loss_against_compute, "laws"),
    "isoflop-profiles": FigureEntry(isoflop_profiles, "laws"),
    "contours": FigureEntry(contours, "laws"),
    "ablation": FigureEntry(ablation, "ablation", reads=("finished", "compare")),
    "forecast": FigureEntry(forecast, "forecast", reads=("finished", "waiting")),
    "layers": FigureEntry(layers, "layers", LAYERS_CAPTION, largest_runs, reads=("finished", "layers")),
    "training-curves": FigureEntry(training_curves, "runs", reads=("finished", "evaluations", "curves")),
    "compute-optimal": FigureEntry(compute_optimal),
    "sweeps": FigureEntry(sweeps),
    "best-settings": FigureEntry(best_settings),
    "specification-curve": FigureEntry(specification_curve),
    "rolling-origin": FigureEntry(rolling_origin),
    "profile": FigureEntry(profile),
    "diagnostics": FigureEntry(diagnostics),
    "design": FigureEntry(design),
}
