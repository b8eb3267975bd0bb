"""The job in the README is started, computed and read as it shows."""

import json
import re
import shlex
import threading
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from app.services import jobs
from tests.test_readme import README, contains


@pytest.mark.slow
def test_the_sweep_is_started_computed_and_read(client: TestClient, application: FastAPI, session_factory: sessionmaker[Session]) -> None:
    written = re.search(
        r"JOB=\$\(curl -s localhost:8000(\S+) (.*?) \| grep -o '(.*?)' \| cut.*?\n```\n\n```json\n(.*?)\n```", README, re.DOTALL
    )
    assert written
    words = shlex.split(written[2])
    answer = client.post(written[1], json=json.loads(words[words.index("-d") + 1]))
    assert answer.status_code == 202, answer.text
    (job_id,) = (UUID(found.split('"')[3]) for found in re.findall(written[3], answer.text))
    for number in range(answer.json()["num_parts"]):
        jobs.compute_part(session_factory, lambda: application.state.catalog.current, threading.Event(), job_id, number)
    found = client.get(f"/jobs/{job_id}").json()
    assert contains(found, json.loads(written[4])), json.dumps({**found, "answer": {**found["answer"], "points": []}}, indent=1)
