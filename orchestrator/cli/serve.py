"""`changeover serve`: the service in the foreground."""

from functools import partial

import click

from orchestrator.cli.call import Call, with_settings


@click.command()
@click.option("--host", help="Address to listen at.  [default: 127.0.0.1]")
@click.option("--port", help="Port to listen at; 0 takes any free one.  [default: 7413]")
@click.option("--database", metavar="FILE", help="The record, a file or sqlite:///FILE.")
@click.option("--max-depth", metavar="N", help="How long a chain of handoffs may be.")
@click.option("--max-terminals", metavar="N", help="How many agents may run at once.")
@click.option("--max-terminals-per-caller", metavar="N", help="How many of them for one caller.")
@click.option(
    "--root", "roots", metavar="FOLDER", multiple=True, help="Agents may work under it; repeatable."
)
@click.option(
    "--trust", "trusted_folders", metavar="FOLDER", multiple=True, help="Its profiles count; repeatable."
)
@click.option(
    "--profiles", "profile_paths", metavar="FOLDER", multiple=True, help="More profiles; repeatable."
)
@click.option(
    "--extra-host", "extra_hosts", metavar="NAME", multiple=True, help="A name the page may be reached by."
)
@click.option(
    "--enable-working-directory/--disable-working-directory",
    "enable_working_directory",
    default=None,
    help="Whether agents may choose the folder of a handoff.",
)
@click.option("--end-agents", is_flag=True, help="End the agents, and their handoffs, with the service.")
@click.option("--verbose", is_flag=True, help="Log more.")
@with_settings(
    **{
        name: name
        for name in (
            "host",
            "port",
            "database",
            "max_depth",
            "max_terminals",
            "max_terminals_per_caller",
            "roots",
            "trusted_folders",
            "profile_paths",
            "extra_hosts",
            "enable_working_directory",
        )
    }
)
def serve(call: Call, end_agents: bool, verbose: bool) -> None:
    """Run the service until Ctrl-C. Agents stay in their terminals and are found again at the next start.

    Each option is also a setting: CHANGEOVER_PORT and so on, or `port = …` in config.toml in the home.
    """
    import anyio

    from orchestrator import bootstrap

    service = partial(bootstrap.serve, call.settings, end_agents=end_agents, verbose=verbose)
    anyio.run(service, backend_options={"use_uvloop": True})
