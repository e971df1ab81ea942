"""A real Prometheus scrapes a role, where one is installed; test_scrapes tests the formats."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from urllib.parse import urlsplit

import pytest
from tools import metrics

from peers.nats import free_port
from peers.roles import KINDS, opened
from peers.scraping import asked
from peers.waiting import until
from trunkline import dcp, mtl

ANY = "tcp://127.0.0.1:*"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: trunkline
    static_configs: [{{targets: [{targets}]}}]
"""

needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


class Server:
    """A Prometheus at a free port."""

    def __init__(self, folder, *targets):
        self._port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(targets=", ".join(f'"{target}"' for target in targets)))
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    PROMETHEUS,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        until(self._is_ready, 60)

    def _is_ready(self):
        assert self._process.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def query(self, expression):
        """The result of a query: values by what their labels are, but for the name."""
        given = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{given}", timeout=20) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def value(self, expression):
        found = self.query(expression)
        return found[0][1] if len(found) == 1 else None

    def targets(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/targets", timeout=20) as answer:
            return json.loads(answer.read())["data"]["activeTargets"]

    def close(self):
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture
def prometheus(tmp_path):
    running = []

    def start(*targets):
        running.append(Server(tmp_path, *targets))
        return running[-1]

    yield start
    for server in running:
        server.close()


@needs_prometheus
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_prometheus_scrapes_a_role(prometheus):
    with (
        dcp.Broker(bind=ANY, metrics="0") as broker,
        dcp.Worker(b"calc", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        server = prometheus(urlsplit(broker.metrics_url).netloc)
        until(lambda: server.value('trunkline_role_up{role="dcp.broker"}') == 1)
        for _ in range(7):
            future = client.submit(b"calc", b"x")
            worker.receive(timeout_s=20).reply(b"y")
            future.result(20)
        client.submit(b'od"d\n\xff', b"x")
        until(lambda: server.value('trunkline_dcp_broker_service_requests_total{service="calc"}') == 7)
        until(lambda: server.value(r'trunkline_dcp_broker_service_queued{service="od\"d\\n\\xff"}') == 1)
        assert server.value("trunkline_dcp_broker_latency_seconds_count") == 7
        (target,) = server.targets()
        assert (target["health"], target["lastError"]) == ("up", "")
        # Each query of the dashboard is one that Prometheus takes.
        for expression in _queries():
            server.query(expression)
        broker.close(drain_s=0)
        until(lambda: server.value("up") == 0)


def _queries():
    chosen = {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m"}
    for panel in metrics.dashboard()["panels"]:
        for target in [
            *panel.get("targets", ()),
            *(each for one in panel.get("panels", ()) for each in one["targets"]),
        ]:
            expression = target["expr"]
            for name, value in chosen.items():
                expression = expression.replace(name, value)
            yield expression


@needs_promtool
@pytest.mark.parametrize("name", KINDS)
def test_promtool_has_nothing_to_say_of_names_and_units(name, tmp_path):
    with mtl.Server(bind=ANY, anonymous=True) as server:
        given = {"connect": server.endpoints, "timeout_s": 20} if name == "mtl.Client" else {}
        role = opened(name, tmp_path, metrics="0", **given)
        text = asked(role.metrics_url)[2]
        role.close()
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
