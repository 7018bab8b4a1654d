"""Settings of `lorogo serve`, `gateway` and `auth`: a file, variables and flags, with one precedence.

    entries ─▶ options (flags) ─┐
       │       variables ───────┼─▶ choice ─▶ Chosen: each value and its source
       └─────▶ files (TOML) ────┘

`entries` is the table of all settings; `value_parser` parses and checks values. `commands/config.py` is
`lorogo config`, and `pages` its documentation of settings. docs/SETTINGS.md is for users.
"""
