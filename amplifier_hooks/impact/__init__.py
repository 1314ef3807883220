"""A shell command comes in; its likely reads, writes and deletes go out, and nothing runs."""
