"""The laws that are sums of terms."""

from scalewright.fitting.laws.additive import AdditiveLaw, Term

_N = Term("A", "alpha", "n_params")
_D = Term("B", "beta", "n_tokens")
_C = Term("A", "alpha", "flops")

CHINCHILLA = AdditiveLaw(
    "chinchilla",
    "loss from parameters and tokens, fitted directly (approach 3)",
    "Hoffmann et al. 2022, arXiv:2203.15556, eq. 2 and appendix D.3",
    "L = E + A N^-alpha + B D^-beta",
    (Term("E"), _N, _D),
)
SHARED = AdditiveLaw(
    "chinchilla-shared",
    "several methods at once: E and the exponents shared, A and B for each method",
    "Hoffmann et al. 2022, arXiv:2203.15556, eq. 2, with method-wise coefficients",
    "L_m = E + A_m N^-alpha + B_m D^-beta",
    (Term("E"), _N, _D),
    ("A", "B"),
)
EQUAL = AdditiveLaw(
    "equal-exponents",
    "loss from parameters and tokens with one exponent for both: four parameters, which five runs can carry",
    "Gadre et al. 2024, arXiv:2403.08540, eq. 4, with alpha = 2 eta",
    "L = E + A N^-alpha + B D^-alpha",
    (Term("E"), _N, Term("B", "alpha", "n_tokens")),
)
POWER = AdditiveLaw(
    "power",
    "loss from compute, with a floor",
    "Henighan et al. 2020, arXiv:2010.14701, eq. 1.1",
    "L = E + A C^-alpha",
    (Term("E"), _C),
)
PURE_POWER = AdditiveLaw(
    "pure-power",
    "loss from compute, without a floor: a straight line in log-log, which few points can identify",
    "Kaplan et al. 2020, arXiv:2001.08361, eq. 1.3",
    "L = A C^-alpha",
    (_C,),
)
POWER_SHARED = AdditiveLaw(
    "power-shared",
    "loss from compute for several methods: one exponent, a coefficient for each",
    "Kaplan et al. 2020, arXiv:2001.08361, eq. 1.3, with method-wise coefficients",
    "L_m = A_m C^-alpha",
    (_C,),
    ("A",),
)
SIZE = AdditiveLaw(
    "size",
    "loss from parameters alone, with a floor: runs of one number of tokens, or of very many",
    "Kaplan et al. 2020, arXiv:2001.08361, eq. 1.1, with a floor",
    "L = E + A N^-alpha",
    (Term("E"), _N),
)
TOKENS = AdditiveLaw(
    "tokens",
    "loss from tokens alone, with a floor: runs of one size",
    "Kaplan et al. 2020, arXiv:2001.08361, eq. 1.2, with a floor",
    "L = E + B D^-beta",
    (Term("E"), _D),
)
WIDTH_DEPTH = AdditiveLaw(
    "width-depth",
    "loss from width, depth and tokens: what each of them is worth",
    "Hoffmann et al. 2022, arXiv:2203.15556, eq. 2, with parameters taken apart into width and depth",
    "L = E + A W^-alpha + G H^-gamma + B D^-beta",
    (Term("E"), Term("A", "alpha", "width"), Term("G", "gamma", "depth"), _D),
)
