"""Client connections: the listeners, and the path of requests and responses."""
