"""The version of the wire, and what is said to one who speaks a later one (docs/PROTOCOL.md, "Versions")."""

from lorogo_protocol.errors import LorogoError

WIRE = 1


class LaterWire(LorogoError):
    """Something here was made by a later version of lorogo, which this one does not understand."""

    code = "later-wire"


def later(theirs: object, who: str, *, advice: str) -> str:
    """The sentence for one who says that it speaks a version that we do not know; "": it is fine.

    Nothing said is 1: the first version did not say it.
    """
    if theirs is None or (type(theirs) is int and 0 < theirs <= WIRE):
        return ""
    return f"{who} speaks version {str(theirs)[:20]} of the wire, and this is version {WIRE}: {advice}"
