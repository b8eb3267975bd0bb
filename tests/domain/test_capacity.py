"""Capacity: constraints, redundancy, nodes, bounds, and what must hold for every demand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.bounds import SpeedBounds, attention_flops, speed_bounds, weights_read_ratio
from app.domain.capacity import Constraint, constraints_of, nodes_for
from app.domain.concurrency import ConcurrencyAtLength, at_length
from app.domain.demand import demand_of
from app.domain.deployment import Deployment, Speculative
from app.domain.errors import MissingFigure
from app.domain.fleet import Reserve
from app.domain.hardware import Gpu, PeakFlops
from app.domain.memory import fit
from app.domain.precision import compute_format
from app.domain.rounding import ceil, floor
from app.domain.sizing import Measured, Sizing
from app.domain.workload import Slo, TokenLengths, Workload
from tests.domain.shapes import BUNDLED, CARD, H100, dense

DEPLOYMENT = Deployment(tp=4, weights="fp8", kv_cache="bf16")


def constant(tokens: float) -> TokenLengths:
    return TokenLengths(mean=tokens, p50=tokens, p95=tokens, p99=tokens)


def workload(rps: float = 100, prompt: float = 4000, output: float = 500, **more: object) -> Workload:
    return Workload.model_validate({"peak_rps": rps, "input_tokens": prompt, "output_tokens": output, **more})


def bounds(deployment: Deployment = DEPLOYMENT) -> SpeedBounds:
    llm = dense()
    return speed_bounds(llm, CARD, deployment, fit(llm, CARD, deployment))


def sizing(
    load: Workload, *, measured: Measured | None = None, slo: Slo | None = None, modelled: bool = True, seqs: int | None = None
) -> Sizing:
    found = fit(dense(), CARD, DEPLOYMENT)
    demand = demand_of(load)
    holds: ConcurrencyAtLength | None = at_length(found, DEPLOYMENT, demand.mean_input_tokens + demand.mean_output_tokens, 0.7)
    return Sizing(demand, measured, slo, holds if modelled else None, seqs, bounds() if modelled else None)


def by_name(constraints: list[Constraint]) -> dict[str, Constraint]:
    return {item.name: item for item in constraints}


def test_decode_reads_weights_and_cache_once_per_step() -> None:
    assert bounds().decode_step_s(1, 0) == pytest.approx(17.5e9 / 3e12)
    assert bounds().decode_step_s(10, 1000) == pytest.approx((17.5e9 + 10 * 1000 * 81920) / 3e12)
    assert bounds().decode_step_s(100_000, 0) == pytest.approx(2 * 70e9 * 100_000 / 4e15)  # arithmetic takes over
    assert bounds().weights_only_tokens_per_s() == pytest.approx(3e12 / 17.5e9)


def test_pipeline_stages_run_one_after_the_other() -> None:
    staged = bounds(Deployment(tp=2, pp=2, weights="fp8"))
    assert staged.decode_step_s(1, 0) == pytest.approx(35e9 / 3e12)


def test_speculation_yields_several_tokens_a_step() -> None:
    drafted = bounds(DEPLOYMENT.model_copy(update={"speculative": Speculative(num_draft_tokens=4, acceptance_ratio=0.5)}))
    assert drafted.tpot_s(1, 0) == pytest.approx(bounds().tpot_s(1, 0) / 3)


def test_prefill_counts_half_of_the_attention_matrix() -> None:
    assert bounds().prefill_s(4000) == pytest.approx((2 * 70e9 * 4000 + 4 * 80 * 4000**2 * 8192 / 2) / 4e15)


def test_attention_follows_windows_and_latents() -> None:
    windowed, latent = BUNDLED.models["mistral-7b-v0.1"], BUNDLED.models["deepseek-v3"]
    assert attention_flops(windowed, 8192) == 32 * 2 * 32 * 256 * 8192 * 4096
    assert attention_flops(latent, 1000) == 61 * 2 * 128 * (128 + 64 + 128) * 1000 * 1000
    assert attention_flops(BUNDLED.models["qwen3-next-80b-a3b"], 1000) == 12 * 2 * 16 * 512 * 1000 * 1000


def test_experts_are_read_as_they_are_touched() -> None:
    llm = BUNDLED.models["qwen3-30b-a3b"]
    shares = [weights_read_ratio(llm, batch) for batch in (1, 8, 64, 4096)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1, abs=1e-6)
    experts = llm.num_expert_params
    assert shares[0] == pytest.approx(1 - experts * (1 - 8 / 128) / llm.num_params)
    assert weights_read_ratio(dense(), 1) == 1


def test_products_run_in_what_the_card_computes() -> None:
    a100 = BUNDLED.gpus["a100-sxm-80gb"]
    assert compute_format("fp8", H100) == "fp8"
    assert compute_format("fp8", a100) == "bf16"  # FP8 weights are widened there
    assert compute_format("nvfp4", H100) == "bf16"
    assert compute_format("awq", H100) == compute_format(None, H100) == "bf16"
    assert compute_format(None, BUNDLED.gpus["t4-16gb"]) == "fp16"


def test_a_missing_rate_is_named() -> None:
    bare = Gpu(slug="bare", name="bare", memory_bytes=80 * 10**9, peak_flops_per_s=PeakFlops(fp8=1e15))
    with pytest.raises(MissingFigure, match="memory_bandwidth_bytes_per_s of bare"):
        speed_bounds(dense(), bare, DEPLOYMENT, fit(dense(), bare, DEPLOYMENT))
    with pytest.raises(MissingFigure, match=r"peak_flops_per_s\.bf16 of bare"):
        speed_bounds(dense(), bare, Deployment(tp=4, weights="bf16"), fit(dense(), bare, DEPLOYMENT))


def test_the_largest_batch_just_holds_the_objective() -> None:
    most = bounds().largest_batch(0.02, 4250, 65536)
    assert bounds().tpot_s(most, 4250) <= 0.02 < bounds().tpot_s(most + 1, 4250)
    assert bounds().largest_batch(1e-6, 4250, 65536) == 0


def test_measured_figures_replace_bounds() -> None:
    measured = Measured(output_tokens_per_s=10_000, input_tokens_per_s=50_000, concurrency=75, kv_concurrency=60, e2e_s=0.9)
    found = by_name(constraints_of(sizing(workload(200, 1000, 150), measured=measured)))
    assert {name: item.replicas for name, item in found.items()} == {
        "throughput": 3,
        "prefill": 4,
        "concurrency": 3,
        "kv_cache": 3,
        "slo": None,
    }
    assert {found[name].basis for name in ("throughput", "prefill", "concurrency", "kv_cache")} == {"measured"}


def test_what_is_not_known_is_not_evaluated_and_says_so() -> None:
    found = constraints_of(sizing(workload(), modelled=False))
    assert [item.replicas for item in found] == [None] * 5
    assert all("not evaluated" in item.note for item in found)
    assert Reserve(1.25, 0).replicas(found) == 2  # one replica and its redundancy


def test_time_in_system_prefers_measurement_then_objectives_then_bounds() -> None:
    slo = Slo(ttft_p95_s=2, tpot_p95_s=0.04)
    measured = Measured(ttft_s=0.8, tpot_s=0.025, queue_s=0.2)
    cases = [sizing(workload(), measured=measured, slo=slo), sizing(workload(), slo=slo), sizing(workload())]
    found = [case.time_in_system_s for case in cases]
    assert [item and item.basis for item in found] == ["measured", "assumed", "bound"]
    assert found[0]
    assert found[0].value == pytest.approx(0.2 + 0.8 + 500 * 0.025)
    assert found[1]
    assert found[1].value == pytest.approx(2 + 500 * 0.04)
    by_e2e = sizing(workload(), slo=Slo(e2e_p95_s=9)).time_in_system_s
    assert by_e2e
    assert by_e2e.value == 9


def test_a_constraint_is_as_sure_as_its_weaker_side() -> None:
    held = by_name(constraints_of(sizing(workload(), slo=Slo(ttft_p95_s=2, tpot_p95_s=0.04))))["kv_cache"]
    assert held.basis == "assumed"  # the objectives stand in for a latency that nobody measured


def test_an_objective_below_the_bound_cannot_be_held() -> None:
    found = by_name(constraints_of(sizing(workload(prompt=100_000), slo=Slo(ttft_p95_s=0.01))))["slo"]
    assert found.replicas is None
    assert found.per_replica == 0
    assert "ttft_p95" in found.note


def test_a_tpot_objective_limits_the_batch() -> None:
    tight = by_name(constraints_of(sizing(workload(), slo=Slo(ttft_p95_s=2, tpot_p95_s=0.007))))["slo"]
    loose = by_name(constraints_of(sizing(workload(), slo=Slo(ttft_p95_s=2, tpot_p95_s=0.1))))["slo"]
    assert tight.per_replica is not None
    assert loose.per_replica is not None
    assert tight.per_replica < loose.per_replica


def test_max_num_seqs_limits_concurrency() -> None:
    found = by_name(constraints_of(sizing(workload(), slo=Slo(e2e_p95_s=10), seqs=16)))["concurrency"]
    assert (found.per_replica, found.replicas_exact) == (16, 62.5)


@pytest.mark.parametrize(
    ("replicas", "per_replica", "per_node", "nodes", "on_one", "spanning"),
    [(5, 4, 8, 3, 2, 1), (3, 8, 8, 3, 1, 1), (2, 16, 8, 4, 0, 2), (1, 3, 8, 1, 2, 1)],
)
def test_nodes(replicas: int, per_replica: int, per_node: int, nodes: int, on_one: int, spanning: int) -> None:
    found = nodes_for(replicas, per_replica, per_node)
    assert (found.nodes, found.replicas_per_node, found.nodes_per_replica) == (nodes, on_one, spanning)


def test_rounding_forgives_binary_noise() -> None:
    assert (ceil(10 * 1.1), ceil(3.0000001), floor(100 * 0.29), floor(2.9999)) == (11, 4, 29, 2)
    assert (floor(72_000_000_000), ceil(72_000_000_000), floor(1_000_040_832 * 1.0)) == (72_000_000_000, 72_000_000_000, 1_000_040_832)


@given(
    rps=st.floats(0.01, 1e5), prompt=st.floats(1, 1e5), output=st.floats(1, 1e4), redundancy=st.floats(1, 3), spare=st.integers(0, 5),
    rate=st.floats(1, 1e6), held=st.floats(1, 1e4),
)  # fmt: skip
def test_the_fleet_carries_the_demand(
    rps: float, prompt: float, output: float, redundancy: float, spare: int, rate: float, held: float
) -> None:
    measured = Measured(output_tokens_per_s=rate, input_tokens_per_s=rate * 10, concurrency=held, kv_concurrency=held, e2e_s=5)
    found = constraints_of(sizing(workload(rps, prompt, output), measured=measured, modelled=False))
    replicas = Reserve(redundancy, spare).replicas(found)
    for item in found:
        if item.demand is not None and item.per_replica:
            assert item.per_replica * replicas >= item.demand * (1 - 1e-9)
    assert replicas >= 1 + spare


@given(rps=st.floats(0.01, 1e4), prompt=st.floats(2, 1e5), output=st.floats(2, 1e4), hit=st.floats(0, 1), growth=st.floats(0.5, 2))
def test_demand_adds_up(rps: float, prompt: float, output: float, hit: float, growth: float) -> None:
    demand = demand_of(workload(rps, prompt, output, prefix_hit_ratio=hit, token_growth_ratio=growth))
    assert demand.saved_input_tokens_per_s + demand.computed_input_tokens_per_s == pytest.approx(demand.input_tokens_per_s)
    assert 0 <= demand.saved_input_tokens_per_s <= demand.input_tokens_per_s * (1 + 1e-12)
    assert demand.input_tokens_per_minute == pytest.approx(60 * demand.input_tokens_per_s)


@given(batch=st.integers(1, 4096), context=st.floats(1, 1e5))
def test_bounds_rise_with_batch_and_context(batch: int, context: float) -> None:
    assert bounds().decode_step_s(batch, context) <= bounds().decode_step_s(batch + 1, context)
    assert bounds().decode_step_s(batch, context) <= bounds().decode_step_s(batch, context * 2)


@given(
    tpot=st.floats(1e-4, 1),
    context=st.floats(1, 1e5),
    drafts=st.sampled_from([None, Speculative(num_draft_tokens=3, acceptance_ratio=0.7)]),
)
def test_the_largest_batch_is_the_largest(tpot: float, context: float, drafts: Speculative | None) -> None:
    limits = bounds(DEPLOYMENT.model_copy(update={"speculative": drafts}))
    most = limits.largest_batch(tpot, context, 4096)
    assert most == 0 or limits.tpot_s(most, context) <= tpot
    assert most == 4096 or limits.tpot_s(most + 1, context) > tpot


def test_without_known_concurrency_the_rate_is_that_of_arithmetic_alone() -> None:
    case = sizing(workload())
    unknown = Sizing(case.demand, None, None, None, None, case.bounds)
    found = by_name(constraints_of(unknown))["throughput"]
    assert found.per_replica == pytest.approx(4e15 / (2 * 70e9))  # a single stream would ask for a hundred times the replicas
    assert "not known" in found.note
    assert unknown.planned_concurrency is None


def test_a_replica_that_holds_nothing_has_no_rate() -> None:
    case = sizing(workload())
    empty = Sizing(
        case.demand, None, None, ConcurrencyAtLength(tokens_per_sequence=4500, max_concurrency=0, safe_concurrency=0), None, case.bounds
    )
    found = by_name(constraints_of(empty))
    assert (found["throughput"].replicas, found["kv_cache"].per_replica, found["kv_cache"].replicas) == (None, 0, None)


def test_what_the_prefix_cache_serves_is_not_waited_for() -> None:
    slo = Slo(ttft_p95_s=0.1)
    cold, warm = sizing(workload(), slo=slo), sizing(workload(shared_prefix_tokens=3000, prefix_hit_ratio=1), slo=slo)
    assert cold.least
    assert warm.least
    assert cold.least.prefill_s > 0.1 > warm.least.prefill_s
    assert warm.least.prefill_s == pytest.approx(bounds().prefill_s(4000, 3000))
    assert by_name(constraints_of(cold))["slo"].per_replica == 0
    assert by_name(constraints_of(warm))["slo"].per_replica is None
    everything = sizing(workload(prefix_hit_ratio=1))
    assert everything.least
    assert everything.least.prefill_s == pytest.approx(bounds().prefill_s(4000, 3999))  # the last token is always computed


def test_a_measured_time_replaces_its_bound_alone() -> None:
    latency = sizing(workload(), measured=Measured(ttft_s=3, queue_s=1)).latency
    unmeasured = sizing(workload()).least
    assert latency
    assert unmeasured
    assert (latency.queue_s, latency.ttft_s, latency.basis) == (1, 3, "bound")
    assert latency.tpot_s == unmeasured.tpot_s


def test_nothing_is_least_without_bounds() -> None:
    case = sizing(workload())
    assert Sizing(case.demand, None, None, None, None, None).least is None


def test_a_measured_total_breaks_its_objective() -> None:
    slo = Slo(e2e_p95_s=3)
    found = {e2e: by_name(constraints_of(sizing(workload(), measured=Measured(e2e_s=e2e), slo=slo)))["slo"] for e2e in (2.0, 4.0)}
    assert found[2.0].per_replica is None
    assert (found[4.0].per_replica, "e2e_p95 4 s > 3 s" in found[4.0].note) == (0, True)
