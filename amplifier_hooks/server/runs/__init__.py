"""Requests about runs come in; queued runs, their events, and work for runners go out."""
