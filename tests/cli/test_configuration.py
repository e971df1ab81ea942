"""Options from variables and from a file."""

from __future__ import annotations

import pytest
import typer

from trunkline.cli.app import app
from trunkline.cli.options import variables

UNREACHABLE = "tcp://127.0.0.1:1"


def all_options(command, context):
    for name, inside in getattr(command, "commands", {}).items():
        yield from all_options(inside, inside.make_context(name, [], parent=context, resilient_parsing=True))
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.expose_value and parameter.name != "help":
            yield context, parameter


def test_each_option_has_a_variable(monkeypatch):
    root = typer.main.get_command(app)
    context = root.make_context("trunkline", [], resilient_parsing=True, auto_envvar_prefix="TRUNKLINE")
    found = 0
    for inner, option in all_options(root, context):
        if not option.allow_from_autoenv:
            assert option.name in ("version", "check"), option.name
            continue
        words = [*inner.command_path.replace("-", "_").split(), option.name]
        name = "_".join(words).upper()
        monkeypatch.setenv(name, "some value")
        assert option.resolve_envvar_value(inner) == "some value", name
        found += 1
    assert found > 300


def test_a_variable_is_an_option(run):
    out, err = run(
        "mc0",
        "publish",
        "runs",
        "x",
        env={
            "TRUNKLINE_MC0_PUBLISH_CONNECT": f"{UNREACHABLE} tcp://127.0.0.1:2",
            "TRUNKLINE_MC0_PUBLISH_TIMEOUT": "0.1",
        },
        returncode=1,
    )
    assert out == ""
    assert f"no middleware answers at {UNREACHABLE} (nothing listens there), tcp://127.0.0.1:2 (" in err
    # What is said on the command line goes before it.
    _, err = run(
        *("mc0", "publish", "runs", "x", "--timeout", "0.2", "--connect", UNREACHABLE),
        env={"TRUNKLINE_MC0_PUBLISH_TIMEOUT": "90"},
        returncode=1,
    )
    assert "timed out after 0.2 s" in err
    soon = {"TRUNKLINE_MC0_PUBLISH_TIMEOUT": "soon"}
    _, err = run("mc0", "publish", "runs", "x", "--connect", UNREACHABLE, env=soon, returncode=2)
    assert "--timeout" in err


@pytest.fixture
def configured(tmp_path):
    def write(text):
        (tmp_path / "trunkline.toml").write_bytes(text)
        return "--config", "trunkline.toml"

    return write


# As an editor of Windows writes it.
PUBLISH = b"""\xef\xbb\xbf# a bus\r
[mc0.publish]\r
connect = "tcp://127.0.0.1:1"\r
timeout = 0.1\r
header = ["X-A=1", "X-B=2"]\r
[mtl.users.add]\r
file = "users.toml"\r
"""


def test_a_file_has_a_table_for_each_command(run, configured, tmp_path):
    config = configured(PUBLISH)
    _, err = run(*config, "mc0", "publish", "runs", "x", returncode=1)
    assert "timed out after 0.1 s" in err
    _, err = run(*config, "mc0", "publish", "runs", "x", "--timeout", "0.2", returncode=1)
    assert "timed out after 0.2 s" in err
    variables = {"TRUNKLINE_CONFIG": "trunkline.toml", "TRUNKLINE_MC0_PUBLISH_TIMEOUT": "0.3"}
    _, err = run("mc0", "publish", "runs", "x", env=variables, returncode=1)
    assert "timed out after 0.3 s" in err
    run(*config, "mtl", "users", "add", "ada", stdin="sesame\n")
    assert "ada" in (tmp_path / "users.toml").read_text()
    assert run(*config, "--check")[0] == "all is well: trunkline.toml\n"
    said = "all is well: trunkline.toml, and 1 variable (TRUNKLINE_MC0_PUBLISH_TIMEOUT)\n"
    assert run(*config, "--check", env={"TRUNKLINE_MC0_PUBLISH_TIMEOUT": "300ms"})[0] == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[mc0.publish]\nconect = 3", "[mc0.publish] there is no option 'conect': did you mean 'connect'?"),
        (b"[mc0.publich]", "there is no command 'mc0.publich': did you mean 'publish'?"),
        (b"mc0 = 3", "mc0 must be a table"),
        (b"[mc0.publish]\ntimeout = 'soon'", "mc0.publish.timeout: 'soon' is not a duration: expected seconds"),
        (b"[mc0.publish.timeout]\ns = 1", "mc0.publish.timeout must be a value, not a table"),
        (b"[mc0.publish]\ntopic = 'x'", "[mc0.publish] there is no option 'topic'"),
        (b"[mc0.publish]\nhelp = true", "[mc0.publish] there is no option 'help'"),
        (b"[mc0.publish", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (b"a = " + b"[" * 20_000, "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(run, configured, text, said):
    config = configured(text)
    for more in (["--check"], ["mc0", "ping", "--connect", UNREACHABLE]):
        _, err = run(*config, *more, returncode=2)
        assert f"trunkline.toml: {said}" in err


def test_all_mistakes_are_said_at_once(run, configured):
    config = configured(
        b"[mc0.publish]\nconect = 3\ntimeout = true\n[cdtp.record]\ncount = inf\n[mc0.middleware]\nmax-topics = -1\n[mc1]\n"
    )
    wrong = {"TRUNKLINE_MC0_MIDDLEWARE_CLIENT_QUEUE_BYTES": "16Mb", "TRUNKLINE_MC0_PUBLISH_CONECT": UNREACHABLE}
    _, err = run(*config, "--check", env={**wrong, "TRUNKLINE_MC0_PUBLISH_TIMEOUT": "5x"}, returncode=2)
    for said in (
        "there is no option 'conect'",
        "mc0.publish.timeout: True is not a duration",
        "cdtp.record.count: inf is too large: the maximum is 9,223,372,036,854,775,807.",
        "mc0.middleware.max-topics: -1 is too small: the minimum is 0",
        "there is no command 'mc1'",
        "there is no variable TRUNKLINE_MC0_PUBLISH_CONECT",
        "TRUNKLINE_MC0_PUBLISH_TIMEOUT: '5x' is not a duration",
    ):
        assert said in err, said
    assert "CLIENT_QUEUE_BYTES" not in err


def test_a_variable_that_no_option_has_is_named(run):
    arguments = ("mc0", "ping", "--connect", UNREACHABLE, "--timeout", "0.1")
    _, err = run(*arguments, env={"TRUNKLINE_MC0_PING_TIMEOUTS": "1"}, returncode=1)
    assert (
        "WARNING: there is no variable TRUNKLINE_MC0_PING_TIMEOUTS: did you mean 'TRUNKLINE_MC0_PING_TIMEOUT'?" in err
    )
    _, err = run(*arguments, env={"TRUNKLINE_MC0_PING_TIMEOUT": "1", "TRUNKLINE_DEBUG": "0"}, returncode=1)
    assert "no variable" not in err


# As Kubernetes makes them in each container for a Service of this name.
SERVICE = {
    "{}_SERVICE_HOST": "10.0.0.1",
    "{}_SERVICE_PORT": "5555",
    "{}_SERVICE_PORT_HTTP_ADMIN": "5555",
    "{}_PORT": "tcp://10.0.0.1:5555",
    "{}_PORT_5555_TCP": "tcp://10.0.0.1:5555",
    "{}_PORT_5555_TCP_PROTO": "tcp",
    "{}_PORT_5555_TCP_PORT": "5555",
    "{}_PORT_5555_UDP_ADDR": "10.0.0.1",
}


def test_variables_that_kubernetes_makes_for_a_service_are_no_mistakes(monkeypatch):
    for service in ("TRUNKLINE", "TRUNKLINE_MC0", "TRUNKLINE_V1_BUS"):
        for name, value in SERVICE.items():
            monkeypatch.setenv(name.format(service), value)
    root = typer.main.get_command(app)
    assert variables.mistakes(root) == []
    monkeypatch.setenv("TRUNKLINE_MC0_SERVICE_HOSTS", "x")
    monkeypatch.setenv("TRUNKLINE_PORT_5555_TCP_NAME", "x")
    wrong = variables.mistakes(root)
    assert [each.split()[4].rstrip(":.") for each in wrong] == [
        "TRUNKLINE_MC0_SERVICE_HOSTS",
        "TRUNKLINE_PORT_5555_TCP_NAME",
    ]


def test_an_option_with_the_name_of_such_a_variable_takes_its_value(monkeypatch):
    root = typer.main.get_command(app)
    taken = [name for name, _ in variables._options(root, "TRUNKLINE_") if name.endswith("_PORT")]
    assert taken
    for name in taken:
        monkeypatch.setenv(name, "tcp://10.0.0.1:5555")
    assert [wrong.partition(":")[0] for wrong in variables.mistakes(root)] == taken


def test_a_file_that_is_not_there(run):
    assert "none.toml: No such file" in run("--config", "none.toml", "mc0", "ping", returncode=2)[1]
    assert "--config" in run("--check", returncode=2)[1]


def test_a_check_takes_its_file_from_wherever_it_is_named(run, configured):
    config = configured(b"[mc0.publish]\ntimeout = 0.1\n")
    named = {"TRUNKLINE_CONFIG": "trunkline.toml"}
    said = "all is well: trunkline.toml\n"
    assert run("--check", env=named)[0] == said
    assert run("--check", *config)[0] == said
    assert run(*config, "--check")[0] == said
    configured(b"[mc0.publish]\ntimeout = 'soon'\n")
    for arguments, env in ((["--check"], named), (["--check", *config], {})):
        _, err = run(*arguments, env=env, returncode=2)
        assert "trunkline.toml: mc0.publish.timeout: 'soon' is not a duration" in err


def test_variables_are_checked_without_a_file(run):
    said = "all is well: 1 variable (TRUNKLINE_MC0_PUBLISH_TIMEOUT)\n"
    assert run("--check", env={"TRUNKLINE_MC0_PUBLISH_TIMEOUT": "300ms"})[0] == said
    wrong = {"TRUNKLINE_MC0_PUBLISH_TIMEOUT": "soon", "TRUNKLINE_MC0_PUBLISH_CONECT": UNREACHABLE}
    _, err = run("--check", env=wrong, returncode=2)
    assert "TRUNKLINE_MC0_PUBLISH_TIMEOUT: 'soon' is not a duration" in err
    assert "no variable TRUNKLINE_MC0_PUBLISH_CONECT" in err


def test_what_is_wrong_with_a_file_is_said_by_the_check_of_a_command(run, configured):
    config = configured(b"[mc0.publish]\ntimeout = 'soon'\n")
    _, err = run(*config, "mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--check", returncode=2)
    assert "trunkline.toml: mc0.publish.timeout: 'soon' is not a duration" in err
