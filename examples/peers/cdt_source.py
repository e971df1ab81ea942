"""A CDT source: it pulls the latest configuration of the endpoint "device-1" from a target and prints it.

python cdt_source.py nats://127.0.0.1:4222 configs
"""

import asyncio
import base64
import json
import sys
import time
import uuid

import nats


async def pull(server: str, target: str) -> None:
    """Publishes a ConfigRequest, and awaits the ConfigResponse at the subject of this replica."""
    client = await nats.connect(server)
    reply_to = f"kaa.v1.replica.{uuid.uuid4().hex}.cmx2cdp.ConfigResponse"
    responses = await client.subscribe(reply_to)
    request = {
        "correlationId": str(uuid.uuid4()),
        "timestamp": time.time_ns() // 1_000_000,  # ms
        "timeout": 30_000,  # ms, from the timestamp on
        "endpointMessageId": str(uuid.uuid4()),
        "appVersionName": "app-1",
        "endpointId": "device-1",
    }
    await client.publish(f"kaa.v1.service.{target}.cmx2cdp.ConfigRequest", json.dumps(request).encode(), reply=reply_to)
    message = await responses.next_msg(timeout=30)
    await client.close()
    if not message.data:  # NATS itself answers, with a status in the headers
        sys.exit(f"no target {target} at {server}")
    response = json.loads(message.data)
    print(response["statusCode"], response["configId"], response["contentType"])
    if response["statusCode"] != 200:
        sys.exit(response.get("reasonPhrase"))
    print(base64.b64decode(response["content"]["bytes"]))


asyncio.run(pull(*sys.argv[1:3]))
