"""The methods that can be named, one file each. Explicit table; no torch."""

from models.methods.angpt import ANGPT
from models.methods.deepnorm import DEEPNORM
from models.methods.gpt import GPT, GPT_PLUS, PRE_LN
from models.methods.lns import LNS
from models.methods.method import Method
from models.methods.mix_ln import MIX_LN
from models.methods.ngpt import NGPT
from models.methods.peri_ln import PERI_LN
from models.methods.post_ln import POST_LN
from models.methods.sandwich_ln import SANDWICH_LN
from models.methods.scale_res import SCALE_RES

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
