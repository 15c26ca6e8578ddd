"""The page of a fault run: ``report.html``, one file that needs no network and no script.

Its plots are SVG of our own, not matplotlib's: they take their colours from the page, light and dark, stay
text, and are some kilobytes long, and nobody has to install a plotting library for six plots. The page is
built as a tree of elements, so that nothing a history holds is ever taken for markup.
"""
