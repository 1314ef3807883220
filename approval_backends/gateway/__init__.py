"""Connections of approvers come in; waiting requests go out to them, and their decisions come back."""
