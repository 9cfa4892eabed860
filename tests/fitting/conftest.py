"""Lets the tests of this folder import the planted laws beside them, and the simulations that benchmarks measure."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parents[1] / "benchmarks"))
