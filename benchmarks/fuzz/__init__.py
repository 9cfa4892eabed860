"""What a broken file costs: studies, the ways to break their files, and what must hold all the same."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "tests" / "orchestrator")]
