"""Schedules come in by their seeds; the path of an act runs through each over virtual time, and violations go out."""
