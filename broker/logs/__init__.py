"""The logs behind the replicas: opened, checkpointed, scrubbed, set aside; producers' state."""
