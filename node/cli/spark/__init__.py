"""``pykraft spark JOB``: one module for each job."""
