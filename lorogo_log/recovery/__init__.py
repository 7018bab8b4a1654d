"""Opening after a crash: torn tails are cut, broken segments are set aside, losses are reported."""
