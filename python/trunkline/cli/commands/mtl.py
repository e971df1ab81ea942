"""`trunkline mtl`: a server, its clients, and its users."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from trunkline.cli.commands import mtl_client, mtl_server, mtl_upkeep
from trunkline.cli.commands.mtl_users import users
from trunkline.cli.options.commands import Commands, family_of
from trunkline.cli.terminal.content import MessageView, Showing

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

app = Commands(help="MTL: a broker with logins, leases and confirmed delivery.")
app.command(epilog=mtl_server.EXAMPLE)(mtl_server.server)
app.command(epilog=mtl_client.SEND)(mtl_client.send)
app.command(epilog=mtl_client.RECEIVE)(mtl_client.receive)
app.command(epilog=mtl_client.CALL)(mtl_client.call)
app.command(epilog=mtl_client.QUEUES)(mtl_client.queues)
app.command(epilog=mtl_upkeep.BACKUP)(mtl_upkeep.backup)
app.command(epilog=mtl_upkeep.EXPORT)(mtl_upkeep.export)
app.command("import", epilog=mtl_upkeep.IMPORT)(mtl_upkeep.import_)
app.later("users", functools.partial(family_of, users, "users"))


def _view(message: Any) -> MessageView:
    kind = type(message).__name__
    if kind == "Message":
        names = ("type", "resource", "sequence", "properties", "multiple", "recycle", "status", "lease")
        fields = {name: getattr(message, name) for name in names}
        known = ("properties", "multiple", "recycle", "status")
        details = {name: fields[name] for name in known if fields[name] not in (None, {})}
        number = "" if message.sequence is None else f" {message.sequence}"
        payload = () if message.body is None else (message.body,)
        return MessageView(f"{message.type}{number}", message.resource or "", fields, details, payload)
    if kind == "Command":
        return MessageView(
            "command", message.name, {"type": "command", "name": message.name, "body": message.body}, message.body, ()
        )
    return MessageView(
        "reply",
        str(message.status),
        {"type": "reply", "status": message.status, "body": message.body},
        message.body,
        (),
    )


SHOWING = Showing(
    _view,
    fields=(
        *("name", "status", "body", "resource", "sequence", "properties", "multiple", "recycle", "lease"),
        "redelivered",
    ),
    members=("properties", "body"),
)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import mtl
    from trunkline.cli.terminal.json_lines import CHECKED, Line, Maybe, line, ready, role, stopped

    queue = {
        **dict.fromkeys(("messages", "bytes", "unconfirmed", "readers", "writers", "max-messages", "max-bytes"), int),
        "ttl-ms": int | None,
        "dead-letter": str | None,
    }
    return {
        "mtl server": [CHECKED, *role(mtl.ServerStats, ready(data_endpoints=Maybe(list[str]), metrics_url=Maybe(str)))],
        "mtl send": [line("rejected", index=int), stopped(mtl_client.Sent)],
        "mtl receive": [
            *role(mtl.FlowStats),
            line("content", resource=str, sequence=int, properties=dict[str, Any], redelivered=bool, body=str),
        ],
        "mtl call": [line("reply", status=int, body=Any)],
        "mtl queues": [Line("queue", {"name": str, **queue})],
        "mtl backup": [line("copied", path=str, queues=int, contents=int, bytes=int)],
        "mtl export": [line("exported", path=str, users=int, queues=int)],
        "mtl import": [line("imported", path=str, users=int, queues=int)],
        "mtl users add": [line("added", name=str, file=str), line("changed", name=str, file=str)],
        "mtl users remove": [line("removed", name=str, file=str)],
        "mtl users list": [line("user", name=str, password=bool, read=list[str] | None, write=list[str] | None)],
    }
