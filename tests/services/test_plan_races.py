"""Changes of plans at the same time, each in a transaction of its own."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.domain.catalog import Catalog
from app.domain.errors import InvalidInput, NotFound, StaleVersion
from app.domain.plan import Plan
from app.services import plans
from tests.services.stand_in import OLD, plan_input


@pytest.fixture
def committing(engine: Engine) -> Iterator[sessionmaker[Session]]:
    """Sessions on connections of their own that commit; what they leave is deleted."""
    yield sessionmaker(engine, expire_on_commit=False)
    with engine.begin() as connection:
        of_race = "(select id from plans where owner = 'race')"
        connection.execute(text(f"delete from plan_revisions where plan_id in {of_race}"))  # noqa: S608
        connection.execute(text("delete from plans where owner = 'race'"))


def at_once(actions: list[Callable[[], Any]]) -> list[Any]:
    """Results or exceptions of actions that start together."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return action()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def test_of_changes_made_at_once_on_one_revision_exactly_one_wins(committing: sessionmaker[Session], catalog: Catalog) -> None:
    with committing.begin() as session:
        plan_id = plans.create(session, catalog, OLD, plan_input(owner="race")).id

    def change(tp: int) -> Plan:
        with committing.begin() as session:
            return plans.change(session, catalog, OLD, plan_id, frozenset({1}), plan_input(owner="race", tp=tp))

    outcomes = at_once([partial(change, tp) for tp in range(2, 8)])
    winners = [outcome for outcome in outcomes if isinstance(outcome, Plan)]
    assert len(winners) == 1
    assert sum(isinstance(outcome, StaleVersion) for outcome in outcomes) == 5
    with committing() as session:
        assert plans.get(session, plan_id) == winners[0]
        assert [each.revision for each in plans.revisions(session, plan_id, None, 10)] == [2, 1]


def test_a_change_waits_for_one_under_way_and_then_sees_it(committing: sessionmaker[Session], catalog: Catalog) -> None:
    with committing.begin() as session:
        plan_id = plans.create(session, catalog, OLD, plan_input(owner="race")).id
    started = threading.Event()
    outcome: list[Plan | StaleVersion] = []

    def second() -> None:
        with committing() as session:
            started.set()
            try:
                outcome.append(plans.change(session, catalog, OLD, plan_id, frozenset({1}), plan_input(owner="race", tp=3)))
            except StaleVersion as error:
                outcome.append(error)

    with committing.begin() as first:
        plans.change(first, catalog, OLD, plan_id, frozenset({1}), plan_input(owner="race", tp=2))
        waiting = threading.Thread(target=second)
        waiting.start()
        started.wait()
        waiting.join(timeout=0.3)
        assert waiting.is_alive()
        assert outcome == []
    waiting.join(timeout=10)
    assert isinstance(outcome[0], StaleVersion)


def test_a_transaction_that_fails_leaves_nothing_of_the_plan(committing: sessionmaker[Session], catalog: Catalog) -> None:
    with committing() as session:
        plan = plans.create(session, catalog, OLD, plan_input(owner="race"))
        with pytest.raises(InvalidInput):
            plans.change(session, catalog, OLD, plan.id, None, plan_input(owner="race", tp=65))
        session.rollback()
    with committing() as session:
        assert session.execute(text("select count(*) from plan_revisions where plan_id = :id"), {"id": plan.id}).scalar_one() == 0
        with pytest.raises(NotFound):
            plans.get(session, plan.id)
