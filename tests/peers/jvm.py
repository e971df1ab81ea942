"""A JVM that is there before the commands that use it, as spark-submit starts it before its driver."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

_PROGRAM = """
import json, sys
from pyspark import SparkContext
from trunkline import spark

session = spark.session("trunkline tests", master="local[2]", memory="1g")
parameters = SparkContext._gateway.java_parameters
# Each command has a context of its own.
session.stop()
print(json.dumps([parameters.port, parameters.auth_token]), flush=True)
sys.stdin.read()
"""


class Jvm:
    """A JVM in which one command after the other has a Spark session."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is closed with the JVM
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        port, secret = json.loads(self._process.stdout.readline())
        self.environment = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        """What a command finds it by."""

    def said(self) -> str:
        """What it and the workers of commands wrote on standard error, which would be that of a command with its own JVM."""
        return Path(f"/proc/self/fd/{self._errors.fileno()}").read_text()

    def close(self) -> None:
        self._process.communicate(timeout=60)
        self._errors.close()
