"""The page for approvers: plain files, sent as they are. There is no build step, and nothing comes from another server.

    index.html, style.css    the page before its scripts run
    text.js                  the only way a text gets onto the page
    link.js                  the connection, and the server's time
    arming.js                which keys and clicks count as an answer
    queue.js                 the queue, each row in its place
    card.js                  one request, and the answer to it
    diff.js                  lines of a change
    lists.js                 history, grants, and the rail beside the card
    words.js                 the end of a request, in words
    page.js                  puts them together: token, places, keys

The server writes every text about a request (`approval_backends/card/contents.py`); the page interprets no arguments.
"""
