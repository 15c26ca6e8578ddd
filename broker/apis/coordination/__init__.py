"""The APIs of groups and transactions: passed to the coordinators on this broker, and markers."""
