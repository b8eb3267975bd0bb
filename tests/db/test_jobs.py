"""Jobs in the database: parts and queue in one transaction, attempts that outlive their worker change nothing."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session, sessionmaker

from app.db import jobs
from app.db.jobs import Attempt
from app.domain.job import JobFilter, JobKind
from app.domain.problem import Problem
from app.domain.provenance import Answer, Versions

ANSWER = Answer(summary="Done.", working=[], assumptions=[], warnings=[], versions=Versions(planner="1", catalog="2"))
PROBLEM = Problem(type="/problems/x", title="X", status=500, detail="why", code="x", request_id="1", errors=[])
REQUEST = {"z": 1, "a": [1.5, None]}


def added(session: Session, kind: JobKind = "simulation", num_parts: int = 2) -> UUID:
    job_id = uuid4()
    jobs.insert_job(session, job_id, kind, REQUEST, num_parts, "somebody")
    return job_id


def queued(session: Session, job_id: UUID) -> list[int]:
    statement = text("select args from job_queue.procrastinate_jobs where args->>'job_id' = :id and status = 'todo' order by id")
    return [row.args["number"] for row in session.execute(statement, {"id": str(job_id)})]


def begun(session: Session, job_id: UUID, number: int) -> Attempt:
    attempt = jobs.begin_part(session, job_id, number)
    assert attempt is not None
    return attempt


def state(session: Session, job_id: UUID) -> str:
    found = jobs.find(session, job_id)
    assert found is not None
    return found.state


def test_a_job_and_its_queued_parts_are_kept_together_or_not_at_all(session_factory: sessionmaker[Session]) -> None:
    with session_factory() as session:
        dropped = added(session)
        session.rollback()
    with session_factory.begin() as session:
        kept = added(session, num_parts=3)
    with session_factory() as session:
        assert queued(session, dropped) == []
        assert jobs.find(session, dropped) is None
        assert queued(session, kept) == [0, 1, 2]
        found = jobs.find(session, kept)
        assert found is not None
        assert (found.state, found.num_parts, found.num_parts_done, found.progress_ratio) == ("queued", 3, 0, 0.0)
        assert list(found.request) == ["z", "a"]


def test_queueing_leaves_the_search_path_as_it_was(session: Session) -> None:
    before = session.execute(text("show search_path")).scalar_one()
    added(session)
    assert session.execute(text("show search_path")).scalar_one() == before


def test_the_last_part_gets_all_results_and_then_there_is_an_answer(session: Session) -> None:
    job_id = added(session)
    first, second = begun(session, job_id, 0), begun(session, job_id, 1)
    assert jobs.end_part(session, second, "d2", {"r": 2}) is None
    results = jobs.end_part(session, first, "d1", {"r": 1})
    assert results is not None
    assert [tuple(each) for each in results] == [(0, "d1", {"r": 1}), (1, "d2", {"r": 2})]
    jobs.succeed(session, job_id, ANSWER)
    found = jobs.find(session, job_id)
    assert found is not None
    assert (found.state, found.summary, found.versions, found.num_parts_done) == ("succeeded", "Done.", ANSWER.versions, 2)
    assert found.ended_at is not None
    assert found.started_at is not None
    assert session.execute(text("select count(result) from job_parts where job_id = :id"), {"id": job_id}).scalar_one() == 0


def test_progress_is_the_mean_over_the_parts(session: Session) -> None:
    job_id = added(session)
    attempt = begun(session, job_id, 0)
    assert jobs.tell_progress(session, attempt, 0.5)
    found = jobs.find(session, job_id)
    assert found is not None
    assert (found.state, found.progress_ratio) == ("running", 0.25)


def test_a_worker_that_was_given_up_for_dead_changes_nothing_any_more(session: Session) -> None:
    job_id = added(session, num_parts=1)
    dead = begun(session, job_id, 0)
    living = begun(session, job_id, 0)
    assert (dead.attempts, living.attempts) == (1, 2)
    assert not jobs.tell_progress(session, dead, 0.9)
    assert jobs.end_part(session, dead, "d", {"r": "old"}) is None
    jobs.hand_back(session, dead)
    assert queued(session, job_id) == [0]
    results = jobs.end_part(session, living, "d", {"r": "new"})
    assert results is not None
    assert results[0].result == {"r": "new"}


def test_what_is_handed_back_counts_for_no_attempt_and_is_queued_again(session: Session) -> None:
    job_id = added(session, num_parts=1)
    jobs.hand_back(session, begun(session, job_id, 0))
    assert queued(session, job_id) == [0, 0]
    assert begun(session, job_id, 0).attempts == 1


def test_parts_from_other_inputs_are_queued_again(session: Session) -> None:
    job_id = added(session)
    first, second = begun(session, job_id, 0), begun(session, job_id, 1)
    jobs.end_part(session, first, "old", {})
    assert jobs.end_part(session, second, "new", {}) is not None
    jobs.redo(session, second, [0])
    assert queued(session, job_id) == [0, 1, 0]
    assert jobs.end_part(session, begun(session, job_id, 0), "new", {}) is not None


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
def test_a_job_that_has_ended_wants_no_more_work(session: Session, ending: str) -> None:
    job_id = added(session)
    attempt = begun(session, job_id, 0)
    assert jobs.end(session, job_id, "failed" if ending == "failed" else "cancelled", PROBLEM if ending == "failed" else None)
    assert not jobs.end(session, job_id, "cancelled")
    assert not jobs.tell_progress(session, attempt, 0.5)
    assert jobs.end_part(session, attempt, "d", {}) is None
    assert jobs.begin_part(session, job_id, 1) is None
    found = jobs.find(session, job_id)
    assert found is not None
    assert (found.state, found.problem) == (ending, PROBLEM if ending == "failed" else None)


def test_only_what_has_ended_is_deleted(session: Session) -> None:
    kept, gone = added(session), added(session)
    jobs.end(session, gone, "cancelled")
    assert not jobs.delete_job(session, kept)
    assert jobs.delete_job(session, gone)
    assert jobs.find(session, gone) is None
    assert state(session, kept) == "queued"


def test_old_jobs_are_deleted(session: Session) -> None:
    kept, gone = added(session), added(session)
    jobs.end(session, gone, "cancelled")
    assert jobs.delete_ended(session, timedelta(days=1)) == 0
    assert jobs.delete_ended(session, timedelta(seconds=-1)) == 1
    assert jobs.find(session, gone) is None
    assert state(session, kept) == "queued"


def test_lists_are_filtered_and_go_on_behind_a_position(session: Session) -> None:
    simulations = {added(session) for _ in range(3)}
    sweep = added(session, kind="sweep")
    jobs.end(session, sweep, "cancelled")
    found = jobs.list_jobs(session, JobFilter(kind="simulation"), None, 10)
    assert {job.id for job in found} == simulations
    rest = jobs.list_jobs(session, JobFilter(kind="simulation"), (found[0].created_at, found[0].id), 10)
    assert [job.id for job in rest] == [job.id for job in found[1:]]
    assert [job.id for job in jobs.list_jobs(session, JobFilter(state="cancelled"), None, 10)] == [sweep]


def test_the_state_of_the_queue(session: Session) -> None:
    added(session)
    begun(session, added(session), 0)
    session.execute(text("insert into job_queue.procrastinate_workers (last_heartbeat) values (now()), (now() - interval '1 hour')"))
    found = jobs.queue_state(session, 20.0)
    assert (found.num_queued, found.num_running, found.num_workers) == (1, 1, 1)
    assert jobs.num_open(session) == 2


def test_what_has_hundreds_of_parts_lets_the_others_pass(session: Session) -> None:
    for kind in ("sweep", "recommendation", "simulation"):
        added(session, kind=kind, num_parts=1)
    statement = text("select args->>'job_id' from job_queue.procrastinate_fetch_job_v2(null, null)")
    session.execute(text("set local search_path to job_queue, public"))
    taken = [session.execute(statement).scalar_one() for _ in range(3)]
    assert [jobs.find(session, UUID(each)).kind for each in taken] == ["recommendation", "simulation", "sweep"]  # type: ignore[union-attr]
