"""What a worker does with a part: the answer of the direct call, handed back, dropped, failed, computed again."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from app.catalog.loader import load_bundled
from app.db import jobs as stored
from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, PlannerError
from app.domain.hardware import Gpu
from app.domain.job import MOST_ATTEMPTS, Job, JobKind
from app.services import jobs
from app.services.job_work import KINDS, work_of
from app.services.recommendation import recommend
from app.services.simulation import simulation
from app.services.simulation_request import SimulationRequest
from app.services.simulation_sweep import SweepRequest

SIMULATION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "deployment": {"engine": "vllm"},
    "workload": {"peak_rps": 8, "input_tokens": 1000, "output_tokens": 200},
    "duration_s": 20,
    "seeds": [1, 2],
    "slo": {"ttft_p95_s": 0.3},
}
FEW_PLACES = {"engine": "vllm", "max_num_seqs": 8}
SWEEP: dict[str, Any] = {
    "base": SIMULATION,
    "peak_rps": [4, 12],
    "replicas": [1, 2],
    "deployments": [{"name": "usual", "deployment": {"engine": "vllm"}}, {"name": "few", "deployment": FEW_PLACES}],
}
Compute = Callable[[UUID], Job]


def catalog_with(*changed: Gpu, version: str) -> Catalog:
    bundled = load_bundled()
    gpus = dict(bundled.gpus) | {gpu.slug: gpu for gpu in changed}
    engines = tuple(bundled.engines.values())
    return Catalog(gpus=gpus, models=bundled.models, prices=bundled.prices, version=version, engines=engines, steps=bundled.steps)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return catalog_with(version="c-1")


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TELL_INTERVAL_S", 0.0)


def start(session_factory: sessionmaker[Session], catalog: Catalog, kind: JobKind, body: dict[str, Any]) -> UUID:
    request: BaseModel = KINDS[kind][0].model_validate(body)
    with session_factory.begin() as session:
        return jobs.start(session, kind, request, work_of(kind, catalog, body).num_parts, "me").id


def answer_of(job: Job) -> Any:
    assert job.state == "succeeded", job.problem
    return job.answer


@pytest.fixture
def compute(session_factory: sessionmaker[Session], catalog: Catalog) -> Compute:
    """Compute every part of a job as workers do."""

    def run(job_id: UUID) -> Job:
        with session_factory() as session:
            count = jobs.get(session, job_id).num_parts
        for number in reversed(range(count)):
            jobs.compute_part(session_factory, lambda: catalog, threading.Event(), job_id, number)
        with session_factory() as session:
            return jobs.get(session, job_id)

    return run


def test_a_job_answers_what_the_direct_call_does(session_factory: sessionmaker[Session], catalog: Catalog, compute: Compute) -> None:
    job = compute(start(session_factory, catalog, "simulation", SIMULATION))
    assert (job.state, job.num_parts, job.progress_ratio) == ("succeeded", 2, 1.0)
    direct = simulation(catalog, SimulationRequest.model_validate(SIMULATION))
    assert job.answer == direct.model_dump(mode="json")
    assert SimulationRequest.model_validate(job.request) == SimulationRequest.model_validate(SIMULATION)
    assert (job.summary, job.versions) == (direct.summary, direct.versions)


def test_a_sweep_gathers_what_each_point_alone_gives(session_factory: sessionmaker[Session], catalog: Catalog, compute: Compute) -> None:
    job = compute(start(session_factory, catalog, "sweep", SWEEP))
    assert (job.state, job.num_parts) == ("succeeded", 16)
    answer = answer_of(job)
    points = answer["points"]
    assert [(each["deployment"], each["replicas"], each["peak_rps"]) for each in points] == [
        (name, replicas, rate) for name in ("usual", "few") for replicas in (1, 2) for rate in (4, 12)
    ]
    for each in points:
        changes = {
            "workload": SIMULATION["workload"] | {"peak_rps": each["peak_rps"]},
            "replicas": each["replicas"],
            "deployment": FEW_PLACES if each["deployment"] == "few" else SIMULATION["deployment"],
        }
        alone = simulation(catalog, SimulationRequest.model_validate(SIMULATION | changes)).model_dump(mode="json")
        shared = each.keys() & alone.keys() - {"course"}
        assert {name: each[name] for name in shared} == {name: alone[name] for name in shared}
        assert [one["verdict"] for one in each["objectives"]] == [each["verdict"]]
    fleets = {(each["deployment"], each["replicas"]): (each["highest_rps"], each["next_rps"]) for each in answer["fleets"]}
    assert fleets["usual", 1] == (12, None)
    assert fleets["few", 1][1] is not None
    verdicts = {(each["deployment"], each["replicas"], each["peak_rps"]): each["verdict"] for each in points}
    for (name, replicas), (highest, following) in fleets.items():
        assert highest is None or verdicts[name, replicas, highest] == "holds"
        assert following is None or verdicts[name, replicas, following] != "holds"


def test_a_search_answers_what_the_direct_call_does(session_factory: sessionmaker[Session], catalog: Catalog, compute: Compute) -> None:
    body = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "workload": SIMULATION["workload"], "slo": {"ttft_p95_s": 1}}
    body["prices"] = {"h100-sxm-80gb": 2.5}
    job = compute(start(session_factory, catalog, "recommendation", body))
    request_type, _ = KINDS["recommendation"]
    direct = recommend(catalog, request_type.model_validate(body)).model_dump(mode="json")
    assert answer_of(job)["deployments"] == direct["deployments"]


def test_a_worker_that_is_told_to_end_hands_its_part_back(session_factory: sessionmaker[Session], catalog: Catalog) -> None:
    job_id = start(session_factory, catalog, "simulation", SIMULATION)
    stopping = threading.Event()
    stopping.set()
    jobs.compute_part(session_factory, lambda: catalog, stopping, job_id, 0)
    with session_factory() as session:
        row = session.execute(text("select state, attempts from job_parts where job_id = :id and number = 0"), {"id": job_id}).one()
        assert tuple(row) == ("queued", 0)


def test_a_cancelled_job_is_dropped_in_mid_run(session_factory: sessionmaker[Session], catalog: Catalog) -> None:
    job_id = start(session_factory, catalog, "simulation", SIMULATION)
    with session_factory.begin() as session:
        attempt = stored.begin_part(session, job_id, 0)
        assert attempt is not None
        jobs.cancel(session, job_id)
    tell = jobs._teller(session_factory, attempt, threading.Event())
    with pytest.raises(jobs._NotWanted):
        work_of("simulation", catalog, SIMULATION).run(0, tell)


def test_while_the_database_is_away_the_work_goes_on(catalog: Catalog) -> None:
    def away() -> Any:
        raise OperationalError("", {}, Exception())

    class Factory:
        begin = staticmethod(away)

    attempt = stored.Attempt(UUID(int=1), 0, 1, "simulation", SIMULATION)
    tell = jobs._teller(Factory(), attempt, threading.Event())  # type: ignore[arg-type]
    assert work_of("simulation", catalog, SIMULATION).run(0, tell)


def test_a_part_over_which_workers_die_ends_its_job(session_factory: sessionmaker[Session], catalog: Catalog, compute: Compute) -> None:
    job_id = start(session_factory, catalog, "simulation", SIMULATION)
    for _ in range(MOST_ATTEMPTS):
        with session_factory.begin() as session:
            assert stored.begin_part(session, job_id, 1)  # and then it was killed
    job = compute(job_id)
    assert job.state == "failed"
    assert job.problem is not None
    assert (job.problem.code, job.problem.request_id) == ("worker_lost", str(job_id))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidInput("no", field="/model", value="x", expected="another"), 422, "invalid_input"),
        (OverflowError("large"), 422, "result_out_of_range"),
        (RuntimeError("secret"), 500, "internal_error"),
    ],
    ids=["refused", "overflow", "fault"],
)
def test_what_goes_wrong_is_a_problem_of_the_job(
    session_factory: sessionmaker[Session],
    catalog: Catalog,
    compute: Compute,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    job_id = start(session_factory, catalog, "simulation", SIMULATION)
    monkeypatch.setattr("app.services.job_work.modelled", fail)
    job = compute(job_id)
    assert job.state == "failed"
    assert job.problem is not None
    assert (job.problem.status, job.problem.code) == (status, code)
    assert "secret" not in job.problem.model_dump_json()
    assert [field.pointer for field in job.problem.errors] == (["/model"] if isinstance(error, PlannerError) else [])


def test_parts_of_another_catalog_are_computed_again(session_factory: sessionmaker[Session], catalog: Catalog) -> None:
    job_id = start(session_factory, catalog, "simulation", SIMULATION)
    gpu = catalog.gpu("h100-sxm-80gb")
    assert gpu.memory_bandwidth_bytes_per_s is not None
    slower = gpu.model_copy(update={"memory_bandwidth_bytes_per_s": gpu.memory_bandwidth_bytes_per_s / 2})
    changed = catalog_with(slower, version="c-2")
    stopping = threading.Event()
    for current, number in ((catalog, 0), (changed, 1), (changed, 0)):
        with session_factory() as session:
            assert jobs.get(session, job_id).state != "succeeded"
        jobs.compute_part(session_factory, lambda current=current: current, stopping, job_id, number)  # type: ignore[misc]
    with session_factory() as session:
        job = jobs.get(session, job_id)
    assert job.answer == simulation(changed, SimulationRequest.model_validate(SIMULATION)).model_dump(mode="json")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"base": SIMULATION | {"gpu": "nothing"}}, "/base/gpu"),
        ({"deployments": [{"name": "a", "deployment": {"engine": "vllm"}, "gpu": "nothing"}]}, "/deployments/0/gpu"),
        ({"base": SIMULATION | {"duration_s": 1e6}}, "/base/duration_s"),
        ({"base": SIMULATION | {"duration_s": 10_000, "seeds": list(range(30))}, "peak_rps": [20, 21, 22, 23, 24, 25, 26]}, ""),
        ({"peak_rps": list(range(1, 51)), "replicas": [1, 2, 3]}, ""),
        ({"base": SIMULATION | {"faults": [{"kind": "replica_loss", "at_s": 1, "replica_index": 1}]}}, "/base/faults/0/replica_index"),
    ],
    ids=["gpu", "own-gpu", "long", "together", "points", "fault"],
)
def test_a_sweep_that_cannot_be_is_refused_where_it_is_wrong(catalog: Catalog, changes: dict[str, Any], pointer: str) -> None:
    SweepRequest.model_validate(SWEEP | changes)
    with pytest.raises(PlannerError) as caught:
        work_of("sweep", catalog, SWEEP | changes).check()
    assert caught.value.field == pointer
