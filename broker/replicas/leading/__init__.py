"""What only a leader does: validation, the ISR, waiting requests, markers, coordinators' logs."""
