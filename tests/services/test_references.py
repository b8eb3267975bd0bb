"""What a request describes becomes a model."""

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.loaded_weights import loaded_weights_bytes_per_gpu
from app.services.references import resolve_model
from app.services.requests import ModelArchitecture

EMPTY = Catalog(gpus={}, models={}, prices={}, version="none")
DESCRIBED = {
    "hidden_size": 4096,
    "vocab_size": 32000,
    "layer_groups": [
        {
            "num_layers": 32,
            "mixer": {"kind": "attention", "num_heads": 32, "num_kv_heads": 32, "key_head_dim": 128, "value_head_dim": 128},
            "feed_forward": [{"kind": "dense", "intermediate_size": 11008}],
        }
    ],
}


def described(**more: int) -> ModelArchitecture:
    return ModelArchitecture.model_validate(DESCRIBED | more)


def test_parameters_beyond_the_described_layers_are_kept_and_not_quantised() -> None:
    alone = resolve_model(EMPTY, described())
    tower = resolve_model(EMPTY, described(params=alone.num_params + 300_000_000))
    assert tower.num_language_params() == tower.num_params == alone.num_params + 300_000_000
    assert tower.num_active_params == alone.num_active_params
    weights = Deployment(weights="awq").weights
    sizes = [loaded_weights_bytes_per_gpu(llm, weights, tp=1).bytes_per_gpu for llm in (alone, tower)]
    assert sizes[1] - sizes[0] == 2 * 300_000_000


def test_fewer_parameters_than_the_layers_have_are_taken_as_given() -> None:
    alone = resolve_model(EMPTY, described())
    assert resolve_model(EMPTY, described(params=alone.num_params - 1)).num_params == alone.num_params - 1
