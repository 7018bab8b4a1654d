"""Settings of `lorogo serve`, `gateway` and `auth`: a file, variables and flags, with one precedence.

    entries ─▶ options (flags) ─┐
       │       variables ───────┼─▶ choice ─▶ Chosen: each value, and where it comes from
       └─────▶ files (TOML) ────┘

`entries` is the table of all settings; `value_parser` parses what was written, or says what is wrong.
`commands/config.py` is `lorogo config`, `pages` what it writes about settings. docs/SETTINGS.md is for users.
"""
