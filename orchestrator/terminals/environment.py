"""The environment of an agent: an allow-list. The service's own variables and credentials stay outside."""

from collections.abc import Iterable, Mapping

ALLOWED = frozenset(
    {
        "COLORTERM",
        "HOME",
        "LANG",
        "LOGNAME",
        "NO_PROXY",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "PATH",
        "SHELL",
        "SSH_AUTH_SOCK",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
"""What every program may know of the machine and the user; nothing that names an outer tmux or agent."""


def agent_environment(
    environ: Mapping[str, str], driver_names: Iterable[str], profile_names: Iterable[str]
) -> dict[str, str]:
    """The part of `environ` an agent gets: the allow-list, its driver's names and its profile's.

    Never a `CHANGEOVER_*` variable, whoever names it. The locale is UTF-8: under another one tmux and the
    CLIs replace characters.
    """
    wanted = (ALLOWED | set(driver_names) | set(profile_names)) & environ.keys()
    kept = {name: environ[name] for name in sorted(wanted) if not name.startswith("CHANGEOVER_")}
    return {**kept, "LC_ALL": "C.UTF-8"}
