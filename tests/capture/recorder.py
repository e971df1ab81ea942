"""A recorder to be killed: says where it listens, then how many rows are durable, again and again."""

import itertools
import resource
import sys

from trunkline import cdtp
from trunkline.errors import CaptureError


def say(*words):
    print(*words, flush=True)


path, segment_bytes, file_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if file_bytes:
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
recorder = cdtp.Recorder(path, bind="tcp://127.0.0.1:*", segment_bytes=segment_bytes)
say(recorder.endpoints[0])
try:
    for recorded in itertools.count(500, step=500):
        recorder.wait(count=recorded)
        recorder.flush()
        say(recorder.stats.durable)
except CaptureError as error:
    say(recorder.stats.durable)
    say("failed:", error)
