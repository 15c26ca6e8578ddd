"""One module for each decision on a transactional id: what clients, leaders and timers ask for."""
