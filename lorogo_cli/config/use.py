"""Shared use of settings: start the logs, log remarks, find the address of NATS."""

from lorogo_cli.config.choice import ResolvedSettings
from lorogo_cli.connect.options import named_in
from lorogo_cli.render.logs import begin


def start_logs(settings: ResolvedSettings, *, quiet: bool = False) -> None:
    """Configure logging and, unless `quiet`, log the remarks about settings of other commands."""
    begin(settings["log"])
    import structlog

    log = structlog.get_logger(__name__)
    for remark in () if quiet else settings.remarks:
        log.warning("a mistake in settings that this command does not use", problem=str(remark))


def nats_of(settings: ResolvedSettings) -> str:
    """Return the address of NATS, with the TLS files that the settings name."""
    return named_in(settings["nats"], *(settings[key] for key in ("nats_ca", "nats_cert", "nats_key")))
