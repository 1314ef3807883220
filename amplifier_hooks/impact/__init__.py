"""A tool call comes in; its impact goes out, and nothing runs.

Programs, tools, files and names of functions are rows in `tables/*.toml`; a new program is a row with an example there.
`readers/` has the few programs that no row can describe.
"""
