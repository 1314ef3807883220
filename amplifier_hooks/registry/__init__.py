"""Handlers come in with their options; registered hooks, in order and within their permissions, go out."""
