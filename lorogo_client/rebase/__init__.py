"""Rebase of unsaved edits onto a history that does not contain what they were made on."""
