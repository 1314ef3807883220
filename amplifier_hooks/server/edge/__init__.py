"""Connections come in; authenticated requests, within size and rate limits, go out."""
