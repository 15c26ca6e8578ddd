"""The clusters under test: their processes, versions and replicas."""
