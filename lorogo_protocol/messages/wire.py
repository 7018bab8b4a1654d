"""Version of the wire protocol, and the message for a later version (docs/PROTOCOL.md, "Versions")."""

from lorogo_protocol.errors import LorogoError

WIRE = 1


class LaterWire(LorogoError):
    """A later version of lorogo wrote data that this version does not understand."""

    code = "later-wire"


def later(theirs: object, who: str, *, advice: str) -> str:
    """Return a message if a peer's wire version is unknown, or "" if it is supported.

    None stands for version 1, which did not send its version.
    """
    if theirs is None or (type(theirs) is int and 0 < theirs <= WIRE):
        return ""
    return f"{who} speaks version {str(theirs)[:20]} of the wire, and this is version {WIRE}: {advice}"
