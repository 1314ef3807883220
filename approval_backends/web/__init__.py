"""The page people approve on: plain files, sent as they are. There is no build step, and nothing comes from elsewhere.

    index.html, style.css    what is there before anything has happened
    text.js                  the only way a text gets onto the page
    link.js                  the connection, and the server's time
    arming.js                what counts as an answer of a person
    queue.js                 what waits, each row in its place
    card.js                  one request, and the answer to it
    diff.js                  lines of a change
    lists.js                 history, grants, and the rail beside the card
    words.js                 what became of a request, in words
    page.js                  puts them together: token, places, keys

What the page says of a request was made by the server (`approval_backends/card/contents.py`); it interprets no
arguments.
"""
