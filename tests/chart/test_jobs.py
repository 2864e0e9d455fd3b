"""Migrations, topics and the test pod."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import helm_python
import pytest
import typer
from typer.main import get_command

from room_cli.__main__ import app
from room_common.postgres.migrate import latest

from .conftest import CHART, Render


def test_hooks_run_before_install_and_upgrade_and_leave_nothing(render: Render) -> None:
    made = render()
    weights = []
    for name in ("room-migrations", "room-topics"):
        job = made.get("Job", name)
        annotations = job["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        weights.append(int(annotations["helm.sh/hook-weight"]))
        pod = job["spec"]["template"]["spec"]
        assert "serviceAccountName" not in pod  # of the release, which is not there yet
        assert pod["restartPolicy"] == "Never"
        assert job["spec"]["backoffLimit"] <= 3
        assert "ttlSecondsAfterFinished" not in job["spec"]
        first = job["spec"]["podFailurePolicy"]["rules"][0]
        assert (first["action"], first["onExitCodes"]["values"]) == ("FailJob", [2])
        assert first["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert weights == sorted(weights)


def test_jobs_run_commands_that_exist(render: Render) -> None:
    command = get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    for job in render().kind("Job"):
        program, name, *options = job["spec"]["template"]["spec"]["containers"][0]["args"]
        assert program == "room"
        known = {option for parameter in command.commands[name].params for option in parameter.opts}
        assert set(options) <= known


def test_migrations_may_have_a_role_of_their_own(render: Render) -> None:
    def dsn(optional: list[str]) -> str:
        made = render({"secrets": {"optionalKeys": ["llmApiKey", *optional]}})
        [item] = made.get("Job", "room-migrations")["spec"]["template"]["spec"]["containers"][0]["env"]
        assert item["name"] == "ROOM_DATABASE__DSN_FILE"
        found: str = item["value"]
        return found

    assert dsn([]).endswith("/databaseDsn")
    assert dsn(["migrationDsn"]).endswith("/migrationDsn")


def test_jobs_for_gitops_are_no_hooks_and_their_names_say_what_they_do(render: Render) -> None:
    def names(values: dict[str, object]) -> set[str]:
        return render(values, "minimal", "gitops").names("Job")

    made = render(None, "minimal", "gitops")
    for job in made.kind("Job"):
        assert "helm.sh/hook" not in job["metadata"]["annotations"]
        assert job["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"] == "-5"
    assert made.kind("Pod") == []
    assert names({}) == names({"matcher": {"replicas": 3}})  # the same work: the same Job
    other = names({"image": {"tag": "0.2.0"}})
    assert not names({}) & other
    assert all(len(name) <= 63 for name in other)
    assert render(None).names("Job") == {"room-migrations", "room-topics"}


def test_a_new_migration_is_a_new_job(tmp_path: Path) -> None:
    copy = tmp_path / "room"
    shutil.copytree(CHART, copy)
    catalogue = copy / "files" / "catalogue.json"
    text = catalogue.read_text()
    assert json.loads(text)["schema"] == latest().label
    names = []
    for schema in (latest().label, "9999_next"):
        catalogue.write_text(text.replace(latest().label, schema))
        with helm_python.Chart.load(str(copy)) as chart:
            names.append(Render(chart)(None, "minimal", "gitops").names("Job"))
    assert not names[0] & names[1]


def test_without_jobs_the_notes_say_what_to_do(render: Render) -> None:
    made = render({"migrations": {"mode": "none"}, "topics": {"mode": "none"}})
    assert made.kind("Job") == []
    assert "room migrate" in made.notes
    assert "room topics --create" in made.notes


def test_only_plain_jobs_can_go_by_themselves(render: Render) -> None:
    values = {"migrations": {"mode": "job", "ttlSecondsAfterFinished": 600}}
    [job] = [found for found in render(values).kind("Job") if "migrations" in found["metadata"]["name"]]
    assert job["spec"]["ttlSecondsAfterFinished"] == 600


_CODES = {"/webhooks/" + "0" * 64: 200, "/api/v1/instances": 401}


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(_CODES.get(self.path, 404))
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def answering() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_test_pod_runs_a_program_that_tells_right_from_wrong(render: Render, answering: str) -> None:
    pod = render().get("Pod", "room-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    interpreter, flag, program = pod["spec"]["containers"][0]["args"]
    assert (interpreter, flag) == ("python", "-c")
    variables = {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}
    assert variables == {"INGEST": "http://room-ingest:80", "ADMIN": "http://room-admin:80"}

    def run(ingest: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "INGEST": ingest, "ADMIN": answering}
        return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    good, bad = run(answering), run(f"{answering}/elsewhere")
    assert (good.returncode, bad.returncode) == (0, 1), good.stdout + good.stderr
    assert "FAIL ingest" in bad.stdout
