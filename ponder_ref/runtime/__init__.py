"""What backends and tasks share at run time, without a framework: settings, files, checkpoints, streams."""
