"""The session that an app holds: its document, sync, notifications, presence, and receipts."""
