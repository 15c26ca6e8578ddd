"""The broker as a member of the cluster: registration, heartbeats, the lease, and calls to the controller."""
