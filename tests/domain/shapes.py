"""Models and accelerators for tests, and Hypothesis strategies over them."""

from hypothesis import strategies as st

from app.catalog.loader import load_bundled
from app.domain.attention import Attention
from app.domain.deployment import Deployment
from app.domain.hardware import Gpu, PeakFlops
from app.domain.llm import LayerGroup, Llm

BUNDLED = load_bundled()
CATALOG = BUNDLED.snapshot("bundled")
DETAILED = [model for model in BUNDLED.models.values() if model.layer_groups is not None]
H100 = BUNDLED.gpus["h100-sxm-80gb"]
CARD = Gpu(
    slug="card",
    name="card",
    memory_bytes=80 * 10**9,
    memory_bandwidth_bytes_per_s=3e12,
    peak_flops_per_s=PeakFlops(**dict.fromkeys(PeakFlops.model_fields, 1e15)),
)
GIB = 2**30


def dense(*, params: int = 70 * 10**9, layers: int = 80, heads: int = 64, kv_heads: int = 8, head_dim: int = 128) -> Llm:
    """A dense model of equal layers without a length limit."""
    attention = Attention(num_heads=heads, num_kv_heads=kv_heads, key_head_dim=head_dim, value_head_dim=head_dim)
    groups = (LayerGroup(num_layers=layers, mixer=attention),)
    return Llm(slug="dense", num_params=params, num_active_params=params, num_attention_heads=heads, layer_groups=groups)


models = st.sampled_from(DETAILED)
contexts = st.integers(min_value=1, max_value=4_000_000)
tps = st.sampled_from([1, 2, 4, 8])
deployments = st.builds(Deployment, tp=tps, weights=st.sampled_from([None, "bf16", "fp8", "int4", "awq"]))
