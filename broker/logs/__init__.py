"""The logs of the replicas: opening, checkpoints, scrubbing, damage; and the state of producers."""
