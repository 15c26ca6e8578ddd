"""The leader's side: validation, the ISR, waiting requests, markers, coordinators' logs."""
