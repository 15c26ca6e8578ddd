"""TCP on the event loop: connections, listeners, output, and how many connections there may be."""
