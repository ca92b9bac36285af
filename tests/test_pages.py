"""What pages say about messages, checks, manifests and examples is still so."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from redlock_async.testing import LocalCluster

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def page(name):
    """The text of a page."""
    return (DOCS / name).read_text("utf-8")


def cells(text, column):
    """That column of every table of a page."""
    rows = [line.strip("|").replace("\\|", "/").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row[column].strip() for row in rows if len(row) > column]


# -- troubleshooting ---------------------------------------------------------------------------------------------------

FOREIGN = (
    "Connect call failed",  # asyncio
    "can't be used in 'await' expression", "was never awaited",  # Python
    "object does not support the asynchronous context manager protocol",
    "object does not support the context manager protocol",
    "Invalid args for response field", "is not a callable object", "'Depends' object is not callable",  # FastAPI
    "problem_middleware() takes 0 positional arguments", "KeyError: <AppKey(",  # Python, of aiohttp
    "async def functions are not natively supported",  # pytest
)  # fmt: skip
"""Parts of messages that others write."""

WORDS = 4


def words_of(text):
    """The words of a message."""
    return re.findall(r"[A-Za-z_]+", text)


def written_by_the_package():
    """All text in the package's strings and scripts, as words, a line for each string."""
    found = []
    for path in (ROOT / "redlock_async").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else " x " for part in node.values]
                found.append(" ".join(words_of("".join(parts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(" ".join(words_of(node.value)))
    return "\n".join(found)


def test_every_message_in_troubleshooting_exists():
    """Four words in a row of each message are in the package, or it is the message of another program."""
    text, known = page("troubleshooting.md"), written_by_the_package()
    messages = [message for cell in cells(text, 0) for message in re.findall(r"`([^` ]+ [^`]+)`", cell)]
    assert len(messages) > 50
    missing = []
    for message in messages:
        if any(part in message for part in FOREIGN):
            continue
        said = words_of(re.sub(r"'[^']*'|\d[\d.]*", "x", message))
        windows = [" ".join(said[i : i + WORDS]) for i in range(max(len(said) - WORDS + 1, 1))]
        if not any(window in known for window in windows):
            missing.append(message)
    assert missing == [], "\n".join(missing)


# -- the checklist and Kubernetes --------------------------------------------------------------------------------------


def doctor(cluster):
    """The checks of the doctor on these nodes, by name."""
    done = subprocess.run(
        [sys.executable, "-m", "redlock_async", "doctor", "--json"],
        env=os.environ | {"REDLOCK_NODES": ",".join(cluster.urls)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return {check["check"]: check["level"] for check in json.loads(done.stdout)["checks"]}


def manifests():
    """The manifests of docs/kubernetes.md, made for five nodes as the page does it."""
    (script,) = re.findall(r"```sh\n(kubectl create secret.*?)```", page("kubernetes.md"), re.DOTALL)
    loop = script.partition("\n")[2].rpartition("kubectl apply")[0].replace("> nodes.yml", "")
    done = subprocess.run(["sh", "-c", loop], cwd=DOCS, capture_output=True, text=True, check=True)  # noqa: S607 - any sh on the PATH
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def of_kind(kind):
    """The manifests of that kind, by name; equal ones of the same name are one."""
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def test_kubernetes_nodes_are_independent():
    """Five StatefulSets with one replica, each with its own volume, never two on one machine."""
    nodes = of_kind("StatefulSet")
    assert sorted(nodes) == [f"redlock-{node}" for node in "abcde"] == sorted(of_kind("Service"))
    for name, node in nodes.items():
        spec, pod = node["spec"], node["spec"]["template"]["spec"]
        assert spec["replicas"] == 1
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        assert spec["selector"]["matchLabels"] == node["metadata"]["labels"] == spec["template"]["metadata"]["labels"]
        assert of_kind("Service")[name]["spec"]["selector"] == {"app": "redlock-node", "node": name}
        (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart == {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "redlock-node"}},
        }
        assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["data"]
        assert pod["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_one_kubernetes_budget_covers_all_nodes():
    """At most one node is taken away at a time, and only labelled pods reach them."""
    (budget,) = of_kind("PodDisruptionBudget").values()
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "redlock-node"}}}
    (policy,) = of_kind("NetworkPolicy").values()
    assert policy["spec"]["podSelector"] == budget["spec"]["selector"]
    (label,) = re.findall(r'labels: \{redlock-client: "(\w+)"\}', page("kubernetes.md"))
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"redlock-client": label}}}]


@pytest.mark.redis
def test_kubernetes_nodes_and_the_checklist_satisfy_the_doctor(embedded):  # noqa: ARG001 - it starts servers
    """Servers with the manifests' arguments are fit, and each check that the checklist names exists."""
    (arguments,) = {
        tuple(node["spec"]["template"]["spec"]["containers"][0]["args"]) for node in of_kind("StatefulSet").values()
    }
    password = arguments.index("--requirepass")
    assert arguments[password + 1] == "$(PASSWORD)"
    with LocalCluster(5, server_args=arguments[:password]) as cluster:
        levels = doctor(cluster)
    levels.pop("age")  # they have just been started
    assert set(levels.values()) == {"ok"}, levels
    named = {
        name
        for cell in cells(page("checklist.md"), 3)
        if cell.startswith("`ok` at")
        for name in re.findall(r"`(\w+)`", cell.partition(".")[0])
        if name not in {"ok", "makestep"}
    }
    assert named
    assert named <= levels.keys()


def test_the_checklist_has_twelve_items():
    """Each with a command."""
    items = [cell for cell in cells(page("checklist.md"), 0) if cell.strip("| ").isdigit()]
    assert [int(item.strip("| ")) for item in items] == list(range(1, 13))
    assert all("`" in cell for cell in cells(page("checklist.md"), 2)[2:])


# -- examples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_what_it_shows_and_how_to_start_it(path):
    """One sentence, then one command; the list of examples has the same command."""
    first, _, rest = ast.get_docstring(ast.parse(path.read_text("utf-8"))).partition("\n\n")
    assert first.endswith(".")
    assert "\n" not in first
    command = re.match(rf" *(python examples/{path.name}[^\n#]*)", rest)
    assert command, rest
    assert f"`{command[1].strip()}`" in (ROOT / "examples" / "README.md").read_text("utf-8")
