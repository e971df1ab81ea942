"""Options from variables and from a file."""

from __future__ import annotations

import pytest
import typer

from trunkline.cli.app import app

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
    assert run(*config, "--check")[0] == "all is well\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[mc0.publish]\nconect = 3", "[mc0.publish] there is no option 'conect': did you mean 'connect'?"),
        (b"[mc0.publich]", "there is no command 'mc0.publich': did you mean 'publish'?"),
        (b"mc0 = 3", "mc0 must be a table"),
        (b"[mc0.publish]\ntimeout = 'soon'", "mc0.publish.timeout: Input should be a valid number"),
        (b"[mc0.publish.timeout]\ns = 1", "mc0.publish.timeout must be a value, not a table"),
        (b"[mc0.publish]\ntopic = 'x'", "[mc0.publish] there is no option 'topic'"),
        (b"[mc0.publish]\nhelp = true", "[mc0.publish] there is no option 'help'"),
        (b"[mc0.publish", "not valid TOML"),
        (b"\xff", "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(run, configured, text, said):
    config = configured(text)
    for more in (["--check"], ["mc0", "ping", "--connect", UNREACHABLE]):
        _, err = run(*config, *more, returncode=2)
        assert f"trunkline.toml: {said}" in err


def test_a_file_that_is_not_there(run):
    assert "none.toml: No such file" in run("--config", "none.toml", "mc0", "ping", returncode=2)[1]
    assert "--config" in run("--check", returncode=2)[1]
