"""Reads what roles serve over HTTP, as Prometheus does."""

import http.client
import json
from urllib.parse import urlsplit

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def asked(url, path=None, *, method="GET", accept="text/plain", query=""):
    """The status, the headers and the body of an answer."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=20)
    try:
        connection.request(method, (path or where.path) + query, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def health(url):
    """The status, and the state in words."""
    status, _, body = asked(url, "/healthz")
    return status, json.loads(body)["state"]


def scraped(url, accept="text/plain"):
    """All samples, each a value by its name and labels, as the parser of the format reads them."""
    status, headers, body = asked(url, accept=accept)
    assert status == 200, body
    is_openmetrics = headers["Content-Type"].startswith("application/openmetrics-text")
    assert is_openmetrics == (accept == OPENMETRICS)
    read = openmetrics_parser if is_openmetrics else parser
    samples = {}
    for family in read.text_string_to_metric_families(body):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def value(samples, name, **labels):
    """The value of one of them; None where it is not there."""
    return samples.get((name, frozenset(labels.items())))
