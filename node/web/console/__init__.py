"""The web console: pages about the cluster, made from what any client of it may ask, and rendered here."""
