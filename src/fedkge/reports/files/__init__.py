"""Reports for other programs: tables and plots as files, runs for experiment trackers."""
