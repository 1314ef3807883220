"""The pages for hooks and runs: plain HTML, CSS and JavaScript, in the style of the inbox and with parts of it.

    index.html   the frame, and the two places in it
    page.js      token, places, light and dark
    service.js   the HTTP API, for the pages
    hooks.js     the hooks: list, switch, dry run, execution log
    runs.js      the runs: list, detail
    agents.js    the agents: hooks of blueprints, and the form that overrides one
    lines.js     two texts beside each other, line by line
    pages.css    styles that the inbox does not need

Text and style come from `approval_backends/web/`.
"""
