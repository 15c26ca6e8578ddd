"""Jobs for people who run clusters: ``pykraft spark JOB``, or by ``spark-submit``; one module each."""
