"""`lorogo pipeline`: tables, reports and audits from the history."""
