"""The methods that can be named, one file each. Explicit table; no torch."""

from scalewright.models.methods.angpt import ANGPT
from scalewright.models.methods.deepnorm import DEEPNORM
from scalewright.models.methods.gpt import GPT, GPT_PLUS, PRE_LN
from scalewright.models.methods.lns import LNS
from scalewright.models.methods.method import Method
from scalewright.models.methods.mix_ln import MIX_LN
from scalewright.models.methods.ngpt import NGPT
from scalewright.models.methods.peri_ln import PERI_LN
from scalewright.models.methods.post_ln import POST_LN
from scalewright.models.methods.sandwich_ln import SANDWICH_LN
from scalewright.models.methods.scale_res import SCALE_RES

METHODS: dict[str, Method] = {
    "gpt": GPT,
    "gpt+": GPT_PLUS,
    "angpt": ANGPT,
    "ngpt": NGPT,
    "pre-ln": PRE_LN,
    "post-ln": POST_LN,
    "deepnorm": DEEPNORM,
    "sandwich-ln": SANDWICH_LN,
    "mix-ln": MIX_LN,
    "lns": LNS,
    "scale-res": SCALE_RES,
    "peri-ln": PERI_LN,
}
