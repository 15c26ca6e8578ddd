"""One replica of one partition, pure: its log, role, ISR, high watermark and waiting requests."""
