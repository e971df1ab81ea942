"""`trunkline mtl`: a server, its clients, and its users."""

from __future__ import annotations

import typer

from trunkline.cli import mtl_client, mtl_server
from trunkline.cli.family import Family
from trunkline.cli.mtl_users import users

app = typer.Typer(
    cls=Family,
    help="MTL: a broker with logins, leases and confirmed delivery.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(epilog=mtl_server.EXAMPLE)(mtl_server.server)
app.command(epilog=mtl_client.SEND)(mtl_client.send)
app.command(epilog=mtl_client.RECEIVE)(mtl_client.receive)
app.command(epilog=mtl_client.CALL)(mtl_client.call)
app.command(epilog=mtl_client.QUEUES)(mtl_client.queues)
app.add_typer(users, name="users")
