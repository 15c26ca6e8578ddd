"""``pykraft jepsen watch``: a page that shows a fault run while it goes on.

It follows the files that the run writes in its directory and knows nothing else, so it can be started and
ended at any time, and shows finished runs, too. A look at the page has the history read on; as long as
nobody looks, nothing is done.
"""
