"""What is deployed, read by the tools that know its formats."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from app.settings import Settings
from leadhand.serve import SERVICES
from tests.deploy.compose import ROOT, new_environment

DEPLOY = ROOT / "deploy"
TOOLS = Path(sys.executable).parent


def lint(*command: object) -> None:
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_good() -> None:
    lint(TOOLS / "hadolint", DEPLOY / "Dockerfile")


def test_the_image_has_what_it_copies_and_no_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    sources = [
        line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line
    ]
    let_in = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) for pattern in let_in), source
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]


def test_the_manifests_are_what_kubernetes_knows() -> None:
    lint(TOOLS / "kubernetes-validate", "--strict", *sorted((DEPLOY / "kubernetes").glob("*.yaml")))


def test_a_typing_error_in_a_manifest_would_be_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "api.yaml"
    wrong.write_text(
        (DEPLOY / "kubernetes" / "api.yaml").read_text().replace("replicas:", "replica:")
    )
    with pytest.raises(AssertionError, match="replica"):
        lint(TOOLS / "kubernetes-validate", "--strict", wrong)


def test_kustomize_takes_files_that_are_there() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    files = [*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]]
    assert [name for name in files if not (DEPLOY / name).exists()] == []


@pytest.mark.timeout(60)
def test_the_compose_file_is_good() -> None:
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx is not there, which would run dclint")
    tool = [npx, "--yes", "dclint@3.1.0"]
    if subprocess.run([*tool, "--version"], capture_output=True, timeout=50).returncode:
        pytest.skip("the npm registry did not give us dclint")
    lint(*tool, "--max-warnings", "0", "-c", DEPLOY / "dclint.json", ROOT / "docker-compose.yml")


def test_the_units_are_what_systemd_knows(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not there")
    for unit, name in (
        ("leadhand-api.service",) * 2,
        ("leadhand-worker@.service", "leadhand-worker@1.service"),
    ):
        text = (DEPLOY / "systemd" / unit).read_text()
        assert "Restart=always" in text
        (tmp_path / name).write_text(text.replace("/opt/leadhand/bin/python", sys.executable))
        lint(analyze, "verify", tmp_path / name)


def test_the_settings_that_files_name_exist() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    manifests = [
        document
        for path in (DEPLOY / "kubernetes").glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
    ]
    named = {name for service in compose["services"].values() for name in service["environment"]}
    named |= {
        entry["name"]
        for document in manifests
        for container in document["spec"].get("template", {}).get("spec", {}).get("containers", ())
        for entry in container["env"]
    }
    ours = {name for name in named if name.startswith("LEADHAND_")}
    given = dict.fromkeys(ours, "30") | {"LEADHAND_LOG": "json", "LEADHAND_REDIS_URL": "redis://x"}
    known = {f"LEADHAND_{name.upper()}" for name in Settings.from_env(given).model_fields_set}
    assert ours <= known


def test_api_pods_share_the_folder_of_artifacts() -> None:
    """A pod could not return what another one has received."""
    text = (DEPLOY / "kubernetes" / "api.yaml").read_text()
    documents = {one["kind"]: one for one in yaml.safe_load_all(text)}
    claim = documents["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    folder = {one["name"]: one.get("value") for one in container["env"]}["LEADHAND_ARTIFACTS"]
    mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    found = volumes[mounted[folder]]["persistentVolumeClaim"]["claimName"]
    assert found == claim["metadata"]["name"]


def test_each_file_starts_services_by_the_one_entry() -> None:
    files = [ROOT / "docker-compose.yml", DEPLOY / "Dockerfile"]
    files += [*(DEPLOY / "kubernetes").iterdir(), *(DEPLOY / "systemd").iterdir()]
    started: set[str] = set()
    for file in files:
        words = re.findall(r"[\w./-]+", file.read_text())
        for flag, module, name in zip(words, words[1:], words[2:], strict=False):
            if flag == "-m" and module == "leadhand.serve":
                started.add(name)
            elif flag == "-m":
                assert module in ("venv", "celery"), f"{file}: {module}"
    assert started == {"api", "worker", "probe"} <= {*SERVICES}


def test_each_new_environment_has_secrets_of_its_own() -> None:
    one, two = new_environment(), new_environment()
    secret = [name for name in one if len(one[name]) >= 64]
    assert len(secret) == 7
    assert [name for name in secret if one[name] == two[name]] == []
    assert len({one[name][-64:] for name in secret}) == 7


def test_no_container_runs_as_root() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name, service in compose["services"].items():
        ours = "build" in service  # the image says who it is
        assert ours or service["user"].partition(":")[0] not in ("", "0", "root"), name
        assert service["cap_drop"] == ["ALL"], name
